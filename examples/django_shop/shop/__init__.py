"""A shop: orders, mails, payments."""
