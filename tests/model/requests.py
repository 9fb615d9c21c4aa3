"""Hypothesis strategies for the steps of the machine.

Domains are small, so that dedupe keys, lanes and limit keys meet often. Times that end something
(expiry, retention, ``dedupe_for_s``) end on parts of seconds and the clock moves by whole ones:
what holds at the very instant of an end is not compared. A lane has one order, a limit key one
queue. Jobs with a lane and a key share that key with no other lane: who goes on first is left open
there.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from forge_jobs.core.job import LaneOrder, Successor, UniqueWhile
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Retention, Want

# "free" has no settings.
QUEUES: Final = ("a", "b", "free")
SET_UP: Final = ("a", "b")
KINDS: Final = ("plain", "fetch", "cap", "alert")
KEYS: Final = ("task:fetch/x", "task:fetch/y", "task:free/h")
VERBS: Final = ("cancel", "cancel", "retry", "retry", "retry", "run_now", "run_now", "delete")

_ALERT = Successor("alert", "free", 2, priority=1, tags=("dead-letter", "t1"))
_ALERT_IN_LANE = Successor("alert", "b", 1, lane="letters", order=LaneOrder.STRICT, on_dead=_ALERT)

_KEY: Final = {"queue": "a", "kind": "fetch", "limit_key": "task:fetch/x"}
_SERIAL: Final = {"queue": "a", "lane": "s", "order": LaneOrder.SERIAL}
_STRICT: Final = {"queue": "a", "lane": "t", "order": LaneOrder.STRICT}
_BOTH: Final = {**_SERIAL, "kind": "fetch", "limit_key": "task:fetch/y"}
_ALONE: Final = {"queue": "a", "lane": "n", "order": LaneOrder.NONE}
_HELD: Final = {"queue": "b", "limit_key": "task:free/h", "hold": True}
_CAP: Final = {"kind": "cap"}
_TRACK: Final = {"kind": "cap", "track": True}
# Half of the jobs of an example are bound by something of its theme.
THEMES: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "anything": (_KEY, _SERIAL, _STRICT, _BOTH, _ALONE, _HELD, _CAP, _TRACK),
    "nothing": ({},),
    "steps": ({}, {}, _SERIAL, _STRICT, _KEY),
    "dedupe": ({},),
    "throttle": ({},),
    "key": (_KEY,),
    "serial": (_SERIAL, _SERIAL, _BOTH),
    "strict": (_STRICT,),
    "cap": (_CAP, _TRACK),
    "held": (_HELD, _KEY),
}
_LIFETIMES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"unique_while": UniqueWhile.WAITING},
    {"dedupe_for_s": 60.5},
)


@dataclass(frozen=True)
class Asked:
    """A job to store. ``bound`` and ``key`` choose by the theme of the example."""

    options: dict[str, Any]
    bound: int | None = None
    key: int | None = None

    def under(self, theme: str) -> dict[str, Any]:
        """The options of the NewJob; the machine adds the payload."""
        chosen = THEMES[theme]
        options = dict(self.options)
        if self.bound is not None:
            options |= chosen[self.bound % len(chosen)]
        if options.get("hold"):
            options["delay_s"] = 0.0
        if self.key is not None and (theme == "dedupe" or self.key % 3 == 0):
            options["dedupe_key"] = ("k1", "k2")[self.key % 2]
            options |= _LIFETIMES[self.key // 3 % 3]
        return options


@st.composite
def jobs(draw: st.DrawFn) -> Asked:
    """One job of any shape."""
    options: dict[str, Any] = {"kind": "plain", "queue": draw(st.sampled_from(("a", *QUEUES)))}
    options["priority"] = draw(st.sampled_from((0, 0, 0, -1, 2)))
    options["max_attempts"] = draw(st.sampled_from((5, 1, 2)))
    options["delay_s"] = draw(st.sampled_from((0.0, 0.0, 0.0, 3.0, 20.0)))
    if draw(st.integers(0, 4)) == 4:
        options["expires_s"] = draw(st.sampled_from((2.25, 15.25, 90.25)))
    if draw(st.integers(0, 3)) == 3:
        options["on_dead"] = draw(st.sampled_from((_ALERT, _ALERT_IN_LANE)))
    if draw(st.integers(0, 3)) == 3:
        options["tags"] = draw(st.sampled_from((("t1",), ("t1", "t2"))))
    return Asked(
        options, draw(st.none() | st.integers(0, 23)), draw(st.none() | st.integers(0, 17))
    )


@dataclass(frozen=True)
class Asking:
    """A wait for events of some names. ``is_late``: those sent before it do not count."""

    names: tuple[str, ...] = ("e1",)
    step: int = 0
    is_late: bool = False
    deadline_s: float | None = None
    wake_s: float | None = None


def askings() -> st.SearchStrategy[Asking]:
    """Any wait."""
    return st.builds(
        Asking,
        st.sampled_from((("e1",), ("e2",), ("e1", "e2"))),
        st.integers(0, 1),
        st.sampled_from((False, False, True)),
        st.sampled_from((None, None, 5.5, 20.5)),
        st.sampled_from((None, None, 3.5, 30.5)),
    )


@dataclass(frozen=True)
class Outcome:
    """How a claim ends. ``dead`` stands for a budget that is used up."""

    event: str
    delay_s: float | None = 0.0
    dead: bool = False
    carries: tuple[Asked, ...] = ()
    asking: "Asking" = field(default_factory=Asking)
    progress: bool = False

    def under(self, theme: str) -> "Outcome":
        """In the theme of throttles most claims end with one."""
        if theme == "steps" and self.event in ("crash", "throttle", "missing"):
            return Outcome("suspend", asking=self.asking)
        if theme != "throttle" or self.event == "done":
            return self
        return Outcome("throttle", None if self.delay_s == 40.0 else self.delay_s)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    """Any finish of a claim that the transition table has."""
    event = draw(
        st.sampled_from(
            ("done", "done", "fail", "fail", "die", "crash", "throttle", *_WAITING, *_PARKING)
        )
    )
    delay_s: float | None = draw(st.sampled_from((1.0, 10.0, 40.0)))
    if event == "throttle" and draw(st.booleans()):
        delay_s = None
    dead = event in ("crash", "throttle", "missing") and draw(st.integers(0, 3)) == 3
    carries: tuple[Asked, ...] = ()
    if event == "done" and draw(st.integers(0, 2)) == 2:
        carries = tuple(draw(st.lists(jobs(), min_size=1, max_size=2)))
    return Outcome(event, delay_s, dead, carries, draw(askings()), draw(st.booleans()))


_WAITING: Final = ("throttle", "snooze", "missing")
_PARKING: Final = ("suspend", "suspend", "restart")


@st.composite
def wants(draw: st.DrawFn) -> list[Want]:
    """Room for jobs of some queues, each named once."""
    queues = draw(st.sampled_from((QUEUES, QUEUES, ("a",), ("b", "a"), ("free",))))
    return [
        Want(
            queue,
            draw(st.sampled_from((1, 2, 5, 0))),
            draw(st.sampled_from((0, 0, 1, 3))),
            draw(st.sampled_from(((), (), (), (), ("plain",), ("fetch", "cap")))),
        )
        for queue in queues
    ]


@dataclass(frozen=True)
class Writes:
    """What a process writes about its claims: each part names claims by index.

    ``skew`` bends the epochs, ``stranger`` names claims of other processes or of former times.
    """

    finish: list[tuple[int, Outcome]]
    release: list[int]
    started: list[int]
    skew: int = 0
    stranger: bool = False


_PICKS = st.integers(0, 11)


def writes() -> st.SearchStrategy[Writes]:
    """Any writes in one exchange."""
    return st.builds(
        Writes,
        st.lists(st.tuples(_PICKS, outcomes()), max_size=3),
        st.lists(_PICKS, max_size=2),
        st.lists(_PICKS, max_size=2),
        st.sampled_from((0, 0, 0, 0, 1, -1)),
        st.integers(0, 3).map(lambda n: n == 3),
    )


def finishes() -> st.SearchStrategy[Writes]:
    """Finishes only, of valid claims."""
    chosen = st.lists(st.tuples(_PICKS, outcomes()), min_size=1, max_size=3)
    return st.builds(Writes, chosen, st.just([]), st.just([]))


def filters() -> st.SearchStrategy[Filter]:
    """Filters of an operator."""
    some = (
        JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED, JobStatus.SCHEDULED,
        JobStatus.SUSPENDED,
    )  # fmt: skip
    return st.builds(
        Filter,
        queue=st.sampled_from((None, None, *QUEUES)),
        kind=st.sampled_from((None, None, *KINDS)),
        statuses=st.sampled_from(((), (), some[:1], some[1:3], some)),
        tag=st.sampled_from((None, None, None, "t1")),
        dedupe_key=st.sampled_from((None, None, None, "k1")),
    )


def retentions() -> st.SearchStrategy[Retention]:
    """Short retentions, for all queues or for one."""
    spans = st.sampled_from((0.5, 20.5, 100.5, None))
    queue = st.sampled_from((None, None, *QUEUES))
    return st.builds(Retention, queue=queue, done_s=spans, dead_s=spans, cancelled_s=spans)


@dataclass(frozen=True)
class Step:
    """A method of the machine and its arguments."""

    name: str
    given: dict[str, Any]


ALL: Final = 10_000
_QUEUE = st.sampled_from(SET_UP)
_STEPS: Final[dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]]] = {
    "enqueue": (8, {"wanted": st.lists(jobs(), min_size=1, max_size=3)}),
    "claim": (10, {"who": _PICKS, "wants": wants()}),
    "finish": (10, {"who": _PICKS, "writes": finishes()}),
    "mixed_exchange": (6, {"who": _PICKS, "writes": writes(), "wants": st.just([]) | wants()}),
    "write_steps": (
        6,
        {
            "who": _PICKS,
            "picks": st.lists(st.tuples(_PICKS, _PICKS), min_size=1, max_size=3),
            "skew": st.sampled_from((0, 0, 0, 1, -1)),
        },
    ),
    "ask_for_an_event": (3, {"who": _PICKS, "which": _PICKS, "asking": askings()}),
    "send": (
        5,
        {
            "wanted": st.lists(
                st.tuples(
                    st.sampled_from(("e1", "e2")),
                    st.sampled_from(("1", "1", "2")),
                    st.sampled_from((None, None, "d1")),
                    st.sampled_from((10_000.0, 30.25)),
                ),
                min_size=1,
                max_size=2,
            )
        },
    ),
    "retry_from": (2, {"which": _PICKS, "name": _PICKS}),
    "repeat_a_finish": (2, {"which": _PICKS}),
    "register": (1, {"replaces": st.none() | _PICKS}),
    "beat": (1, {"who": _PICKS}),
    "deregister": (1, {"who": _PICKS}),
    "advance_time": (
        6,
        {
            "seconds": st.sampled_from((1, 4, 4, 10, 16, 61, 130)),
            "beat": st.sampled_from((True, True, True, True, False)),
        },
    ),
    "reap": (2, {"remove_dead": st.booleans()}),
    "lose_a_process": (3, {"who": _PICKS}),
    "promote": (2, {}),
    "act_on_ids": (
        7,
        {
            "verb": st.sampled_from(VERBS),
            "picks": st.lists(_PICKS, min_size=1, max_size=3),
            "apt": st.booleans(),
        },
    ),
    "stop_a_running_job": (4, {"which": _PICKS, "end": st.none() | outcomes()}),
    "act_on_filter": (
        2,
        {
            "verb": st.sampled_from(VERBS),
            "wanted": filters(),
            "limit": st.sampled_from((2, ALL)),
        },
    ),
    "purge": (3, {"keep": retentions()}),
    "pause": (1, {"queue": _QUEUE, "paused": st.sampled_from((True, False, False))}),
    "set_curve": (1, {"queue": _QUEUE, "curve": st.sampled_from((None, (2.0, 3.0), (9.0, 99.0)))}),
    "open_gate": (1, {"queue": _QUEUE}),
    "change_limit": (
        2,
        {
            "name": st.sampled_from(("task:fetch", "task:cap")),
            "concurrency": st.sampled_from((0, 1, 1, 2, 3, None)),
        },
    ),
    "unhold": (1, {"limit_bucket": st.sampled_from(KEYS), "limit": st.integers(1, 2)}),
    "admit": (1, {}),
    "compare_all": (1, {}),
}


def steps() -> st.SearchStrategy[Step]:
    """One step; some come more often than others."""
    names = [name for name, (weight, _) in _STEPS.items() for _ in range(weight)]
    built = {
        name: st.builds(Step, st.just(name), st.fixed_dictionaries(given))
        for name, (_, given) in _STEPS.items()
    }
    return st.sampled_from(names).flatmap(built.__getitem__)
