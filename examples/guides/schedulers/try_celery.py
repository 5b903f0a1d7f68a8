"""Runs the task of docs/guides/schedulers.md in a worker of this process, and decides."""

import time

from celery.contrib.testing.worker import start_worker
from celery_tasks import app, refund

import sayso

with start_worker(app, perform_ping_check=False, loglevel="ERROR"):
    job = refund.delay("A-4721", 320.0)
    while not (waiting := sayso.Review().list().requests):
        time.sleep(0.05)
    sayso.Review(by="ada").approve(waiting[0].id, changes={"amount": 160.0})
    print(job.get(timeout=60))
