"""Values that show what they are without a name beside them.

Only forms that are documented, long, and cannot be mistaken for an id, a digest or a word: private
keys, JSON web tokens, ``Bearer …``, tokens that begin with the prefix of their issuer, and a random
word after ``token``, ``password`` or ``secret``.
"""

import re
from typing import Final

_FORMS: Final = re.compile(
    r"(?P<pem>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:[^\-]|-(?!----END)){0,20000}"
    r"|\beyJ[\w\-]{8,}+\.[\w\-]{2,}+\.[\w\-]*+"
    r"|(?P<bearer>\bbearer[ \t]{1,3})(?!(?:token|auth|scheme|\*\*\*|[=:]))[^\s\"',;&]+",
    re.IGNORECASE,
)
# By issuer: the beginnings in lower case for the cheap first test, and the exact form.
_ISSUED: Final = (
    (("akia", "asia"), r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),  # AWS
    (("k_live_", "k_test_"), r"[prs]k_(?:live|test)_[A-Za-z0-9]{10,}+"),  # Stripe
    (("whsec_",), r"whsec_[A-Za-z0-9+/=]{20,}+"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{30,}+"),  # GitHub
    (("github_pat_",), r"github_pat_\w{30,}+"),
    (("glpat-",), r"glpat-[\w\-]{20,}+"),  # GitLab
    (("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9\-]{10,}+"),  # Slack
    (("aiza",), r"AIza[\w\-]{35}(?![\w\-])"),  # Google
    (("ya29.",), r"ya29\.[\w\-]{20,}+"),
    (("sk-",), r"sk-(?:(?:proj|ant|svcacct|admin)-[\w\-]{20,}+|[A-Za-z0-9]{40,}+)"),
    (("npm_",), r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    (("pypi-agei",), r"pypi-AgEI[\w\-]{20,}+"),
    (("sg.",), r"SG\.[\w\-]{22}\.[\w\-]{43}(?![\w\-])"),  # SendGrid
    (("hvs.",), r"hvs\.[\w\-]{24,}+"),  # HashiCorp Vault
    (("do_v1_", "dop_v1_", "dor_v1_"), r"do[opr]_v1_[0-9a-f]{64}"),  # DigitalOcean
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}"),  # Shopify
    ((":aa",), r"(?:bot)?\d{6,12}:AA[\w\-]{33}(?![\w\-])"),  # Telegram
)
_ISSUED_FORMS: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:" + "|".join(form for _, form in _ISSUED) + ")"
)
# A word after such a name, without a sign between them, if it has letters and digits and is long.
_NAMED_WORD: Final = re.compile(
    r"(?P<name>\b(?:token|password|passwd|secret|api[ _\-]?key|access[ _\-]key)[ \t]{1,3})"
    r"(?=[A-Za-z+/]{0,100}+\d)(?=[\d+/]{0,100}+[A-Za-z])[A-Za-z0-9+/]{12,200}+={0,2}"
    r"(?![\w.\-/(])",
    re.IGNORECASE,
)
# What a text in lower case holds if there may be something to hide.
BEGINNINGS: Final = ("eyj", "bearer", *(part for parts, _ in _ISSUED for part in parts))


def hide(message: str, hidden: str) -> str:
    """The text with such values replaced."""
    message = _FORMS.sub(lambda match: (match["pem"] or match["bearer"] or "") + hidden, message)
    message = _ISSUED_FORMS.sub(hidden, message)
    return _NAMED_WORD.sub(lambda match: match["name"] + hidden, message)
