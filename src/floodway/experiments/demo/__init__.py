"""The demo: a shop's job, offered twice what the machine can process, without and with Floodway."""
