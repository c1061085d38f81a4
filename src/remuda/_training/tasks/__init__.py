"""Evaluation of a policy on tasks: exact, resumable, without waiting for the slowest episode.

`evaluate_tasks` starts at evaluate_tasks.py. The driver (driver.py) takes units, pairs of a task and an episode, from
the schedule, and gives them to envs in the pool. Each slot hosts a `TaskEnv`, which makes the env of the unit's task.
"""
