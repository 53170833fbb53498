"""The side of launchscope that starts the script, follows it and collects one Recording."""
