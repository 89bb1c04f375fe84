"""These run inside the guest that `tests/systemd/guest.sh` boots, file by file in order: each
stands on what those before it have done to the machine."""
