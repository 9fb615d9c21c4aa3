"""Alert rules and their episodes over HTTP."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from forge_jobs.core.alert_rule import new_rule
from forge_jobs.ops import alerts as ops
from forge_jobs.ops.alerts import AlertRuleView, EpisodeView
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

from .parameters import Body, Limit, QueueName, ScheduleName
from .route import Routes

routes = Routes()

RuleName = Annotated[str, Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
ConditionName = Literal[
    "dead_rate", "longest_wait", "backlog", "missed_schedule", "no_worker", "error_returned"
]
Threshold = Annotated[float, Meta(ge=0, le=1e12)]
HoldSeconds = Annotated[float, Meta(ge=0, le=604_800)]
WindowSeconds = Annotated[float, Meta(ge=60, le=86_400)]
MinJobs = Annotated[int, Meta(ge=1, le=1_000_000)]
Receiver = Annotated[str, Meta(min_length=1, max_length=2_000)]
Secret = Annotated[str, Meta(min_length=16, max_length=500)]
QuietTimes = Annotated[tuple[Annotated[str, Meta(max_length=60)], ...], Meta(max_length=20)]
ZoneName = Annotated[str, Meta(min_length=1, max_length=100)]
_NAMES = {"for_s": "hold", "clear_s": "clear", "window_s": "window"}


class AddAlertBody(Body, frozen=True, kw_only=True):
    """An alert rule to store; omitted fields get the defaults of its condition."""

    name: RuleName
    condition: ConditionName
    above: Threshold | None = None
    below: Threshold | None = None
    for_s: HoldSeconds | None = None
    clear_s: HoldSeconds | None = None
    queue: QueueName | None = None
    schedule: ScheduleName | None = None
    window_s: WindowSeconds | None = None
    min_jobs: MinJobs | None = None
    url: Receiver | None = None
    secret: Secret | None = None
    quiet: QuietTimes = ()
    tz: ZoneName = "UTC"


class EditAlertBody(Body, frozen=True, kw_only=True):
    """New values; omitted fields do not change. A ``url`` or ``secret`` of null removes it."""

    above: Threshold | UnsetType = UNSET
    below: Threshold | UnsetType = UNSET
    for_s: HoldSeconds | UnsetType = UNSET
    clear_s: HoldSeconds | UnsetType = UNSET
    queue: QueueName | UnsetType | None = UNSET
    schedule: ScheduleName | UnsetType | None = UNSET
    window_s: WindowSeconds | UnsetType = UNSET
    min_jobs: MinJobs | UnsetType = UNSET
    url: Receiver | UnsetType | None = UNSET
    secret: Secret | UnsetType | None = UNSET
    quiet: QuietTimes | UnsetType = UNSET
    tz: ZoneName | UnsetType = UNSET


class SwitchBody(Body, frozen=True, kw_only=True):
    """Whether the rule is evaluated."""

    enabled: bool


class TestResult(Struct, frozen=True):
    """The job that sends the test message."""

    job_id: str


class EpisodeQuery(Struct, frozen=True, kw_only=True):
    """Which episodes."""

    rule: RuleName | None = None
    open: bool = False
    limit: Limit = 100


@routes.get("/alerts/rules")
async def list_rules(context: RequestContext) -> tuple[AlertRuleView, ...]:
    """All alert rules and their states."""
    return await ops.alert_rules(context.store)


@routes.get("/alerts/episodes")
async def list_episodes(context: RequestContext, query: EpisodeQuery) -> tuple[EpisodeView, ...]:
    """Episodes, the open ones first, then newest first."""
    return await ops.episodes(
        context.store, rule=query.rule, only_open=query.open, limit=query.limit
    )


@routes.post("/alerts/rules", role=Role.ADMIN)
async def add_rule(context: RequestContext, body: AddAlertBody) -> AlertRuleView:
    """Add an alert rule."""
    given = _given(structs.asdict(body))
    name, condition = given.pop("name"), given.pop("condition")
    rule = new_rule(name, condition, where=f"alert {name!r}", **given)
    return await context.alert_actions.add(rule)


@routes.get("/alerts/rules/{name}")
async def get_rule(context: RequestContext, name: RuleName) -> AlertRuleView:
    """One alert rule."""
    return await ops.alert_rule(context.store, name)


@routes.put("/alerts/rules/{name}", role=Role.ADMIN)
async def edit_rule(context: RequestContext, name: RuleName, body: EditAlertBody) -> AlertRuleView:
    """Change fields of an alert rule; code does not overwrite them."""
    changes = {
        _NAMES.get(field, field): value
        for field, value in structs.asdict(body).items()
        if value is not UNSET
    }
    return await context.alert_actions.edit(name, changes)


@routes.delete("/alerts/rules/{name}", role=Role.ADMIN)
async def remove_rule(context: RequestContext, name: RuleName) -> None:
    """Remove an alert rule with its episodes."""
    await context.alert_actions.remove(name)


@routes.post("/alerts/rules/{name}/enabled")
async def switch_rule(context: RequestContext, name: RuleName, body: SwitchBody) -> AlertRuleView:
    """Switch an alert rule on or off; its open episodes close when it is off."""
    return await context.alert_actions.enable(name, body.enabled)


@routes.post("/alerts/rules/{name}/test")
async def test_rule(context: RequestContext, name: RuleName) -> TestResult:
    """Send a test message to the receiver of a rule, by a job."""
    return TestResult(await context.alert_actions.test(name))


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(name, name): value for name, value in fields.items() if value is not None}
