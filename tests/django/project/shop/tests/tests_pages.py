"""Pages: the list of jobs in the admin, and Mission Control under ASGI and WSGI."""

from django.contrib.auth.models import Permission, User
from django.test import AsyncClient, TransactionTestCase

from forge_jobs.django import forge_of, object_jobs_url, object_tag
from shop import tasks
from shop.models import Order


class Pages(TransactionTestCase):
    def setUp(self):
        forge_of().jobs().delete()
        self.staff = User.objects.create_user("ada", is_staff=True)
        self.staff.user_permissions.add(Permission.objects.get(codename="view_job"))

    def test_the_admin_lists_the_jobs_of_an_object(self):
        order = Order.objects.create(number=1)
        tagged = tasks.note.using(tags=[object_tag(order)]).enqueue(order.pk, "<b>paid</b>")
        other = tasks.add.enqueue(1, 2)
        self.client.force_login(self.staff)
        page = self.client.get(object_jobs_url(order)).content.decode()
        self.assertIn(tagged.id, page)
        self.assertNotIn(other.id, page)
        self.assertIn("&lt;b&gt;paid", page)
        everything = self.client.get("/admin/forge_jobs/job/").content.decode()
        self.assertIn(other.id, everything)
        self.assertIn(f'href="/forge/jobs/{other.id}"', everything)
        wrong = self.client.get("/admin/forge_jobs/job/?status=late").content.decode()
        self.assertIn("is unknown", wrong)
        self.assertEqual(self.client.post("/admin/forge_jobs/job/add/").status_code, 404)

    def test_the_admin_pages_through_many_jobs(self):
        for n in range(60):
            tasks.add.enqueue(n, 0)
        self.client.force_login(self.staff)
        first = self.client.get("/admin/forge_jobs/job/")
        older = self.client.get(f"/admin/forge_jobs/job/?{first.context['next_query']}")
        ids = {job.id for job, _ in [*first.context["jobs"], *older.context["jobs"]]}
        self.assertEqual((len(first.context["jobs"]), len(ids)), (50, 60))

    def test_the_admin_asks_for_the_permission(self):
        self.client.force_login(User.objects.create_user("eve", is_staff=True))
        self.assertEqual(self.client.get("/admin/forge_jobs/job/").status_code, 403)

    def test_wsgi_says_how_to_run_mission_control(self):
        self.client.force_login(self.staff)
        page = self.client.get("/forge/")
        self.assertContains(page, "manage.py forge web", status_code=501)

    async def test_staff_may_look_and_operators_may_change(self):
        client = AsyncClient(enforce_csrf_checks=True)
        result = await tasks.add.using(delay="1h").aenqueue(1, 2)
        page, operate = f"/forge/jobs/{result.id}", "/forge/api/jobs/cancel"
        anonymous = await client.get("/forge/")
        self.assertEqual(anonymous.status_code, 302)
        elsewhere = await client.get("/forge/", headers={"host": "evil.example"})
        self.assertEqual(elsewhere.status_code, 400)
        self.assertIn("/admin/login/?next=/forge/", anonymous["location"])
        await client.aforce_login(await User.objects.acreate(username="guest"))
        self.assertEqual((await client.get("/forge/")).status_code, 403)
        await client.aforce_login(self.staff)
        shown = await client.get(page)
        self.assertContains(shown, "shop.tasks.add")
        self.assertIn("default-src 'none'", shown["content-security-policy"])
        self.assertEqual((await client.get("/forge/static/forge.css")).status_code, 200)
        body = {"ids": [result.id]}
        refused = await client.post(operate, body, content_type="application/json")
        self.assertEqual(refused.status_code, 403)
        may = await Permission.objects.aget(codename="operate_job")
        await self.staff.user_permissions.aadd(may)
        other_site = await client.post(
            operate,
            body,
            content_type="application/json",
            headers={"origin": "https://evil.example"},
        )
        self.assertEqual(other_site.status_code, 403)
        done = await client.post(operate, body, content_type="application/json")
        self.assertEqual(done.status_code, 200, done.content)
        await result.arefresh()
        self.assertEqual(result.status, "FAILED")
        self.assertEqual(result.errors[0].exception_class_path, "asyncio.CancelledError")

    async def test_live_pages_are_streams(self):
        client = AsyncClient()
        await client.aforce_login(self.staff)
        response = await client.get("/forge/live?view=/jobs")
        self.assertEqual(response["content-type"], "text/event-stream; charset=utf-8")
        pieces = aiter(response.streaming_content)
        while b"data:" not in await anext(pieces):
            pass
        await pieces.aclose()
