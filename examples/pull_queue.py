"""The pull queue: a script enqueues and dequeues jobs without a worker process.
Run: python examples/pull_queue.py
"""

from forge_jobs import JobQueue

with JobQueue.open(table="images") as queue:  # at FORGE_URL, else in the file forge.db
    for name in ("cat.png", "dog.png", "broken.png"):
        queue.enqueue("resize", {"path": name, "width": 120}, max_attempts=1)
    queue.enqueue("resize", {"path": "urgent.png", "width": 64}, priority=-1)

    while job := queue.dequeue(["resize"], lease="5m"):
        path, width = job.payload["path"], job.payload["width"]
        try:
            if path == "broken.png":
                raise ValueError("not an image")
            queue.complete(job, result={"thumbnail": f"{width}px-{path}"})
            print("resized", path)
        except ValueError as error:
            queue.fail(job, error)
            print("gave up on", path)
    print(queue.summary())
