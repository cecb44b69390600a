"""What all tests share: torch's threads wait as they do in the commands."""

from traces.waiting import wait_passively

wait_passively()
