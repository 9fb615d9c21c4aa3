"""``python -m telegram_gateway`` is the command ``telegram-gateway``."""

from telegram_gateway.cli import main

main()
