"""Leaderboards, statistics, tables and figures: functions of result rows, nothing else."""
