"""Commands to envs and their results: what a pool and its parts send, await and hand out."""
