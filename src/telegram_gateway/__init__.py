"""A gateway for the webhooks of many Telegram bots, built on the public names of forge_jobs.

It receives updates, runs each bot's handler inline (in the webhook request) or as a durable job,
and sends the handler's replies.
"""
