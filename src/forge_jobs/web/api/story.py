"""The story of one job over HTTP."""

from forge_jobs.ops.story import StoryView, story
from forge_jobs.web.request_context import RequestContext

from .parameters import JobId
from .route import Routes

routes = Routes()


@routes.get("/jobs/{job_id}/story")
async def job_story(context: RequestContext, job_id: JobId) -> StoryView:
    """What happened to a job from its enqueue to its end, what made it and what it made."""
    return await story(context.store, job_id, clock=context.clock)
