"""Operator actions in a real browser."""

import json

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from tests.web.browser.site import Site


def job(kind: str, queue: str, **arguments: object) -> NewJob:
    return NewJob(kind=kind, queue=queue, payload=json.dumps(arguments).encode(), max_attempts=1)


def test_a_dead_job_is_found_read_retried_and_seen_done(page: Page, site: Site) -> None:
    (found,) = site.enqueue(job("send", "mail", to="lost@example.com"))
    page.goto("/dead?kind=send")
    row = page.locator(f"#job-{found}")
    expect(row).to_contain_text("no mailbox for lost@example.com")
    row.locator("a[data-drawer]").click()
    drawer = page.locator("#drawer")
    expect(drawer.locator(".card.bad")).to_contain_text("no mailbox for lost@example.com")
    expect(drawer).to_contain_text('"to": "lost@example.com"')
    drawer.get_by_role("button", name="Retry").click()
    expect(page.locator("#notices")).to_contain_text(f"forge jobs retry {found}")
    expect(drawer.locator(".lead .status")).to_have_text("done")
    expect(drawer).to_contain_text("sent to lost@example.com")
    drawer.get_by_role("button", name="Close").click()
    expect(row).to_have_count(0)


def test_a_queue_is_paused_and_resumed(page: Page, site: Site) -> None:
    page.goto("/queues")
    card = page.locator("#q-quick")
    card.get_by_role("button", name="Pause").click()
    expect(card.locator(".tag.warn")).to_have_text("paused")
    site.enqueue(*(job("note", "quick", number=n) for n in range(5)))
    expect(card.locator(".chip.pending")).to_contain_text("5")
    page.goto("/jobs?queue=quick&status=pending")
    page.locator("tr[id] a[data-drawer]").first.click()
    expect(page.locator("#drawer")).to_contain_text("is paused")
    assert site.count(JobStatus.PENDING, queue="quick") == 5
    page.goto("/queues")
    card.get_by_role("button", name="Resume").click()
    site.wait_for(0, JobStatus.PENDING, queue="quick")
    expect(card.locator(".chip.pending")).to_have_count(0)


def test_slots_retention_and_back_off_are_changed(page: Page, site: Site) -> None:
    page.goto("/queues")
    card = page.locator("#q-slow")
    expect(card).to_contain_text("2 of 2 taken up")
    card.get_by_label("Slots").last.fill("3")
    card.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#notices")).to_contain_text("forge queues set slow --workers 3")
    expect(card).to_contain_text("3 of 3 taken up")
    card.get_by_text("Retention and back-off").click()
    card.get_by_label("Keep done").fill("2d")
    card.get_by_role("button", name="Set retention").click()
    expect(card).to_contain_text("done 2 d")
    card.get_by_label("back off when throttled").check()
    card.get_by_label("First pause").fill("20s")
    card.get_by_role("button", name="Set back-off").click()
    expect(card).to_contain_text("20 s to")
    # two live changes later the form is still open
    expect(card.get_by_role("button", name="Set back-off")).to_be_visible()


def test_a_schedule_is_created_fires_is_edited_and_deleted(page: Page, site: Site) -> None:
    page.goto("/cron")
    page.get_by_text("New schedule").click()
    form = page.locator("#new-schedule")
    form.get_by_label("Kind").fill("note")
    form.get_by_label("When").fill("* * * * * *")
    form.get_by_label("Name").fill("each-second")
    form.get_by_label("Payload").fill('{"number": 7}')
    form.get_by_role("button", name="Create").click()
    row = page.locator("#schedule-each-second")
    expect(row).to_contain_text("* * * * * *")
    row.get_by_role("link", name="each-second").click()
    expect(page.get_by_role("table").locator("tbody tr a")).not_to_have_count(0)
    page.get_by_label("When").fill("0 4 * * *")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#notices")).to_contain_text("forge cron set each-second --cron '0 4")
    expect(page.locator(".lead")).to_contain_text("0 4 * * *")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator(".lead .tag")).to_have_text("off")
    page.get_by_role("button", name="Delete").click()
    page.locator("#confirm").get_by_role("button", name="Delete").click()
    expect(page.locator("#notices")).to_contain_text("is gone")
    page.goto("/cron")
    expect(page.locator("#schedule-nightly")).to_be_visible()
    expect(page.locator("#schedule-each-second")).to_have_count(0)


def test_a_thousand_are_retried_by_filter_after_a_preview(page: Page, site: Site) -> None:
    site.enqueue(*(job("send", "mail", to=f"bulk{n}@example.com") for n in range(1_000)))
    site.wait_for(1_000, JobStatus.DEAD, error="bulk")
    page.goto("/dead?error=bulk")
    expect(page.locator(".matching")).to_contain_text("1,000")
    page.get_by_label("all 1,000 matching").check()
    page.get_by_role("button", name="Retry").click()
    preview = page.locator("#bulk")
    expect(preview.locator(".reach")).to_have_text("1,000")
    expect(preview).to_contain_text("forge jobs retry --status dead --error bulk")
    assert site.count(JobStatus.DEAD, error="bulk") == 1_000
    preview.get_by_role("button", name="Retry 1,000").click()
    assert site.count(JobStatus.DEAD, error="bulk") == 1_000, "a click is too little for so many"
    preview.get_by_label("Type retry to go on").fill("retry")
    preview.get_by_role("button", name="Retry 1,000").click()
    expect(page.locator("#notices")).to_contain_text("1,000 back in line")
    expect(page.locator(".matching")).to_contain_text("0 matching")
    site.wait_for(0, JobStatus.DEAD, error="bulk")
    page.goto("/audit")
    expect(page.locator("tbody tr").first).to_contain_text("retry")
    expect(page.locator("tbody tr").first).to_contain_text("changed 1,000")


def test_chosen_rows_keep_their_ticks_and_are_acted_on(page: Page, site: Site) -> None:
    for_later = [job("note", "quick", number=n) for n in range(3)]
    page.goto("/queues")
    page.locator("#q-quick").get_by_role("button", name="Pause").click()
    expect(page.locator("#q-quick .tag.warn")).to_be_visible()
    ids = site.enqueue(*for_later)
    page.goto("/jobs?queue=quick&status=pending")
    for one in ids[:2]:
        page.locator(f"#job-{one} input").check()
    (another,) = site.enqueue(job("note", "quick", number=9))
    page.get_by_role("button", name="1 new").click()
    expect(page.locator(f"#job-{another}")).to_be_visible()
    assert page.locator("input[name=ids]:checked").count() == 2
    page.get_by_role("button", name="Cancel").click()
    page.locator("#confirm").get_by_role("button", name="Cancel").click()
    expect(page.locator(f"#job-{ids[0]}")).to_have_count(0)
    site.wait_for(2, JobStatus.CANCELLED, queue="quick")
    page.goto("/queues")
    page.locator("#q-quick").get_by_role("button", name="Resume").click()
    site.wait_for(0, JobStatus.PENDING, queue="quick")


def test_a_job_is_copied_with_other_data(page: Page, site: Site) -> None:
    (first,) = site.enqueue(job("note", "quick", number=41))
    page.goto(f"/jobs/{first}")
    expect(page.locator(".lead .status")).to_have_text("done")
    page.get_by_text("Enqueue a copy with other data").click()
    page.get_by_label("Payload of the copy").fill('{"number": 42}')
    page.get_by_role("button", name="Enqueue the copy").click()
    messages = page.locator("#notices .notice").first
    expect(messages).to_contain_text("enqueued as")
    copy = (messages.text_content() or "").split()[2]
    page.goto(f"/jobs/{copy}")
    expect(page.locator("#view")).to_contain_text('"number": 42')
    expect(page.locator(".lead .status")).to_have_text("done")


def test_limits_are_set_drained_and_lifted(page: Page, site: Site) -> None:
    page.goto("/limits")
    page.get_by_text("Set a limit").click()
    page.get_by_label("Name").fill("smtp")
    page.get_by_label("Rate", exact=True).fill("10/m")
    page.locator("#set-limit").get_by_role("button", name="Set").click()
    expect(page.locator("#notices")).to_contain_text("forge limits set smtp 10/m")
    row = page.get_by_role("row").filter(has_text="smtp")
    expect(row).to_contain_text("10/m")
    row.get_by_role("button", name="Drain").click()
    expect(row).to_contain_text("0 of 10")
    bound = page.get_by_role("row").filter(has_text="task:wait")
    expect(bound).to_contain_text("of 50")
    bound.get_by_role("button", name="Lift").click()
    page.locator("#confirm").get_by_role("button", name="Lift").click()
    expect(bound).to_have_count(0)


def test_a_worker_is_quieted_and_claims_again(page: Page, site: Site) -> None:
    page.goto("/workers")
    page.get_by_role("button", name="Quiet").click()
    expect(page.locator(".worker .tag.warn")).to_have_text("quiet")
    page.get_by_role("button", name="Take jobs again").click()
    expect(page.locator(".worker .tag.warn")).to_have_count(0)


def test_invalid_input_shows_a_notice_and_is_kept(page: Page, site: Site) -> None:
    page.goto("/cron")
    page.get_by_text("New schedule").click()
    form = page.locator("#new-schedule")
    form.get_by_label("Kind").fill("note")
    form.get_by_label("When").fill("at tea time")
    form.get_by_role("button", name="Create").click()
    expect(page.locator("#notices .bad")).to_contain_text("at tea time")
    expect(form.get_by_label("Kind")).to_have_value("note")


def test_a_search_in_payloads_shows_its_progress(page: Page, site: Site) -> None:
    (found, _) = site.enqueue(
        job("note", "quick", number=77001), job("note", "quick", number=77002)
    )
    page.goto("/jobs?kind=note")
    page.get_by_text("Filter by fields").click()
    page.get_by_label("Payload has").fill("77001")
    page.get_by_role("form").get_by_role("button", name="Filter").click()
    expect(page.locator("tr[id]")).to_have_count(1)
    expect(page.locator(f"#job-{found}")).to_be_visible()
    expect(page.locator(".matching")).to_contain_text("1 found, looked through")
    expect(page.locator("input[name=all]")).to_have_count(0)


def test_a_throttle_is_counted_down_and_cleared(page: Page, site: Site) -> None:
    body = json.dumps({"throttle_ms": 600_000}).encode()
    site.enqueue(NewJob(kind="noop_echo", queue="echo", payload=body))
    page.goto("/queues")
    card = page.locator("#q-echo")
    expect(card.locator(".tag.warn")).to_contain_text("throttled, ends in 9 min")
    card.get_by_role("button", name="Clear the throttle").click()
    expect(page.locator("#notices")).to_contain_text("forge queues unthrottle echo")
    site.wait_for(0, JobStatus.RUNNING, queue="echo")


def test_an_unserved_queue_is_named(page: Page, site: Site) -> None:
    site.run_on_store(lambda store: store.queues.ensure("lonely", slots=2))
    page.goto("/workers")
    expect(page.locator("#view .banner.bad")).to_contain_text("No living worker serves lonely")
    expect(page.locator("#view .banner.bad")).to_contain_text("forge worker APP --queues lonely")
