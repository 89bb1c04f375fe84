"""The build stage: what turns a pool and tasks into a conductor. So far: recorded outcomes."""
