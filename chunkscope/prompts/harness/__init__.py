"""What an evaluation harness wrote down of a run -> the requests it sent, one by one."""
