"""A gateway for the webhooks of many Telegram bots, built on the public names of forge_jobs.

It takes updates in at a door, hands each to its bot's handler, at once or through the durable
queue, and sends what the handler answers.
"""
