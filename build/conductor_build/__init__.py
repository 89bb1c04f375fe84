"""The build stage: what turns recorded outcomes into a conductor, and judges it."""
