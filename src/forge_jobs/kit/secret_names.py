"""Which names mark a secret value: ``api_key``, ``X-Api-Key``, ``dbPassword``, ``password2``.

A name is split into words at ``_ - . space`` and at changes of case and digits. The words and pairs
of adjacent words decide, so that ``access_key`` is a secret and ``cache_key``, ``monkey`` and
``max_tokens`` are not. Applications add names of their own: ``FORGE_REDACT_NAMES``, or
``redact_names`` in forge.toml.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

# Words of a name: "HTTPPassword2" is HTTP, Password, 2.
_WORDS: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
# A longer name is judged by its end; no real name is this long.
_MAX_NAME: Final = 200


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# These are secret wherever they occur inside a word: "dbpassword", "userCredentials".
_PARTS: Final = ("password", "passwd", "passphrase", "passcode", "credential", "apikey")
# These are secret at the end of a word: "clientsecret", "phpsessid".
_ENDS: Final = (
    "secret", "pwd", "cookie", "sessionid", "sessid", "privatekey", "accesskey", "secretkey",
    "passwort", "kennwort",
)  # fmt: skip
_SECRET_WORDS: Final = _set("authorization bearer csrf xsrf cvc cvv jwt jwk mnemonic otp totp ssn")
# Secret as the whole name only; in longer names these words have other meanings ("first_pass").
_WHOLE_NAMES: Final = _set("auth pass pin sid")
# The second word of a pair, and the first words that make it a secret.
_PAIRS: Final[dict[str, frozenset[str]]] = {
    "key": _set(
        "access account aes api app auth cipher client consumer crypto decryption deploy "
        "encryption gpg hmac licence license master pgp private recovery root rsa secret service "
        "session shared signing ssh ssl subscription symmetric tls webhook wrapping"
    ),
    "code": _set("auth backup login mfa pin recovery security sms verification"),
    "auth": _set("basic http proxy"),
    "id": _set("session"),
    "sid": _set("connect"),
    "number": _set("card"),
    "card": _set("credit"),
    "signature": _set("amz"),
    "phrase": _set("seed recovery"),
    "pin": _set("account atm card phone security sim user"),
    "pass": _set(
        "admin auth database db ftp http imap ldap login mail mysql pg postgres proxy redis root "
        "smtp sudo user vault"
    ),
}
# A word beside "token" that makes it a number or a description of tokens.
_NO_TOKEN_VALUE: Final = _set(
    "bucket budget cached completion count counts generated index input length limit limits max "
    "min num output per position prompt rate reasoning remaining total type usage used"
)


class _Added:
    """Names that the application added, read once, when the first name is judged."""

    def __init__(self) -> None:
        self.read: Callable[[], Iterable[str]] | None = None
        self.names: frozenset[tuple[str, ...]] | None = None


_ADDED: Final = _Added()


def read_added_names_with(read: Callable[[], Iterable[str]] | None) -> None:
    """Set the function that returns the names an application added. It is called once."""
    _ADDED.read, _ADDED.names = read, None
    _is_secret.cache_clear()


def added_names() -> frozenset[tuple[str, ...]]:
    """The added names, as words in lower case."""
    if _ADDED.names is None:
        _ADDED.names = frozenset()  # while reading: an error text may be redacted meanwhile
        read = () if _ADDED.read is None else _ADDED.read()
        _ADDED.names = frozenset(words for name in read if (words := name_words(name)))
        _is_secret.cache_clear()
    return _ADDED.names


def name_words(name: str) -> tuple[str, ...]:
    """The words of a name in lower case.

    >>> name_words("X-Api-Key"), name_words("dbPassword2")
    (('x', 'api', 'key'), ('db', 'password', '2'))
    """
    return tuple(map(str.lower, _WORDS.findall(name[-_MAX_NAME:])))


def is_secret_name(name: object) -> bool:
    """Whether the value of a field with this name must be hidden; a name is a text."""
    return isinstance(name, str) and _is_secret(name[-_MAX_NAME:])


@lru_cache(maxsize=2_048)
def _is_secret(name: str) -> bool:
    words = name_words(name)
    joined = name.lower()  # "PassWord" is one word
    if any(part in joined for part in _PARTS):
        return True
    if any(_is_secret_at(words, index) for index in range(len(words))):
        return True
    bare = tuple(word for word in words if not word.isdigit())
    if len(bare) == 1 and _singular(bare[0]) in _WHOLE_NAMES:
        return True
    if len(bare) < len(words) and any(_is_pair(a, b) for a, b in itertools.pairwise(bare)):
        return True
    return _is_added(words)


def is_secret_pair(first: str, second: str) -> bool:
    """Whether two words of a text, such as ``api key``, name a secret together."""
    return _is_pair(first.lower(), second.lower())


def _is_secret_at(words: tuple[str, ...], index: int) -> bool:
    word = words[index]
    before = words[index - 1] if index else ""
    after = words[index + 1] if index + 1 < len(words) else ""
    single = _singular(word)
    if single.endswith("token"):
        return before not in _NO_TOKEN_VALUE and after not in _NO_TOKEN_VALUE
    if single.endswith(_ENDS) or single in _SECRET_WORDS:
        return True
    return _is_pair(before, word)


def _is_pair(before: str, word: str) -> bool:
    partners = _PAIRS.get(_singular(word))
    return partners is not None and before in partners


def _is_added(words: tuple[str, ...]) -> bool:
    singulars = tuple(map(_singular, words))
    for name in added_names():
        size, wanted = len(name), tuple(map(_singular, name))
        if any(singulars[at : at + size] == wanted for at in range(len(words) - size + 1)):
            return True
        if len(wanted) > 1 and "".join(wanted) in singulars:
            return True
    return False


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
