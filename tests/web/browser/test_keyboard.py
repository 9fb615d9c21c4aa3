"""The keyboard alone: every page, every action, without a mouse."""

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from tests.web.browser.site import Site

_MAX_STEPS = 40
_HERE = "document.activeElement.textContent.trim() || document.activeElement.name"


def tab_to(page: Page, text: str) -> None:
    """Press Tab until the focused element has this text or name."""
    for _ in range(_MAX_STEPS):
        page.keyboard.press("Tab")
        if page.evaluate(_HERE) == text:
            return
    raise AssertionError(f"no {text!r} within {_MAX_STEPS} steps")


def test_the_keyboard_alone_finds_and_retries_a_job(page: Page, site: Site) -> None:
    (lost,) = site.enqueue(NewJob(kind="send", queue="mail", payload=b'{"to": "k@example.com"}'))
    keys = page.keyboard
    page.goto("/")
    page.wait_for_function("window.forge")
    keys.press("g")
    keys.press("d")
    page.wait_for_url("**/dead")
    expect(page.locator(f"#job-{lost}")).to_be_visible()
    keys.press("/")
    keys.type("kind:send")
    keys.press("Enter")
    page.wait_for_url("**query=kind%3Asend**")
    expect(page.locator(f"#job-{lost}")).to_be_visible()
    keys.press("j")
    expect(page.locator("tr.current")).to_have_id(f"job-{lost}")
    keys.press("x")
    expect(page.locator("tr.current input")).to_be_checked()
    keys.press("Enter")
    expect(page.locator("#drawer .card.bad")).to_contain_text("k@example.com")
    page.locator("#drawer").get_by_role("button", name="Retry").focus()
    keys.press("Enter")
    expect(page.locator("#drawer .lead .status")).to_have_text("done")
    keys.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    keys.press("Control+k")
    keys.type("health")
    keys.press("Enter")
    page.wait_for_url("**/health")


def test_keys_act_on_rows_after_asking(page: Page, site: Site) -> None:
    later = [NewJob(kind="note", queue="quick", delay_s=3_600, tags=("keys",)) for _ in range(3)]
    site.enqueue(*later)
    keys = page.keyboard
    page.goto("/scheduled?tag=keys")
    page.wait_for_function("window.forge")
    expect(page.locator("tr[id]")).to_have_count(3)
    keys.press("j")
    keys.press("n")
    expect(page.locator("#confirm-title")).to_have_text("Run now 1 job?")
    tab_to(page, "Run now")
    keys.press("Enter")
    site.wait_for(1, JobStatus.DONE, tag="keys")
    expect(page.locator("tr[id]")).to_have_count(2)
    keys.press("a")
    expect(page.locator("#chosen")).to_have_text("2 chosen")
    keys.press("c")
    expect(page.locator("#confirm-title")).to_have_text("Cancel 2 jobs?")
    keys.press("Escape")
    expect(page.locator("#confirm")).to_be_hidden()
    assert site.count(JobStatus.CANCELLED, tag="keys") == 0
    keys.press("d")
    # The bar of actions has a button of this name too: the dialog must be open first.
    expect(page.locator("#confirm-title")).to_have_text("Delete 2 jobs?")
    tab_to(page, "Delete")
    keys.press("Enter")
    site.wait_for(0, JobStatus.SCHEDULED, tag="keys")


def test_a_question_right_after_a_dismissed_one_is_answered(page: Page, site: Site) -> None:
    """The close event of the first question comes when the second one is open already."""
    site.enqueue(NewJob(kind="note", queue="quick", delay_s=3_600, tags=("twice",)))
    page.goto("/scheduled?tag=twice")
    page.wait_for_function("window.forge")
    page.keyboard.press("a")
    expect(page.locator("#chosen")).to_have_text("1 chosen")
    page.keyboard.press("c")
    expect(page.locator("#confirm-title")).to_have_text("Cancel 1 job?")
    page.evaluate(
        """() => {
            document.querySelector("#confirm").close("no");
            document.querySelector('button[data-bulk="delete"]').click();
        }"""
    )
    expect(page.locator("#confirm-title")).to_have_text("Delete 1 job?")
    page.locator("#confirm-yes").click()
    site.wait_for(0, JobStatus.SCHEDULED, tag="twice")
    assert site.count(JobStatus.CANCELLED, tag="twice") == 0


def test_keys_pause_a_queue_and_change_its_slots(page: Page, site: Site) -> None:
    keys = page.keyboard
    page.goto("/")
    page.wait_for_function("window.forge")
    keys.press("g")
    keys.press("q")
    page.wait_for_url("**/queues")
    page.wait_for_function("window.forge")
    card = page.locator("#q-mail")
    for _ in range(_MAX_STEPS):
        keys.press("j")
        if page.locator("#q-mail.current").count():
            break
    expect(page.locator("#q-mail.current")).to_be_visible()
    tab_to(page, "Pause")
    keys.press("Enter")
    expect(card.locator(".tag.warn")).to_have_text("paused")
    tab_to(page, "slots")
    keys.press("Control+a")
    keys.type("5")
    keys.press("Enter")
    expect(page.locator("#notices")).to_contain_text("forge queues set mail --workers 5")
    page.get_by_role("button", name="Resume").focus()
    keys.press("Enter")
    expect(card.locator(".tag.warn")).to_have_count(0)


def test_help_names_the_keys_and_turns_them_off(page: Page) -> None:
    page.goto("/queues")
    page.wait_for_function("window.forge")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("retry, run now, cancel, delete: asks first")
    page.get_by_label("Single-key shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    expect(page.get_by_label("Updates")).to_have_value("0")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_hidden()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    page.get_by_label("Single-key shortcuts are on").check()
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    expect(page.get_by_label("Updates")).to_have_value("off")
    page.keyboard.press("p")
    expect(page.get_by_label("Updates")).to_have_value("0")
