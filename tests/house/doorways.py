"""Third-party libraries and the environment, and which modules may use them."""

# Where a library may be imported. `*` crosses folders here. A doorway that nobody uses fails, too.
DOORWAYS: dict[str, tuple[str, ...]] = {
    "acp": ("agents/workers/acp_client.py", "agents/workers/acp_session.py", "fleet/features/serve_acp/*"),
    "aiohttp": (
        *("agents/simulated/*", "agents/workers/relay_server.py", "agents/tools/fetch.py"),
        *("fleet/features/notify/channels.py", "fleet/features/traces/spans.py", "dashboards/web/*"),
    ),
    "anthropic": (
        *("agents/models/bedrock.py", "agents/models/claude.py"),
        "agents/simulated/rules.py",
    ),
    "botocore": ("agents/models/bedrock.py",),
    "git": ("worktrees/git/reader.py",),
    "google": ("agents/models/claude.py",),
    "httpx2": ("agents/models/claude.py",),
    "jinja2": ("dashboards/*",),
    "markupsafe": ("dashboards/*",),
    "mcp": ("fleet/features/serve_mcp/server.py", "fleet/features/tool_servers/mcp_connection.py"),  # slow to import
    "mcp_types": ("fleet/features/serve_mcp/server.py", "fleet/features/tool_servers/mcp_connection.py"),
    "platformdirs": ("fleet/config/load.py",),
    "prometheus_client": ("dashboards/metrics/server.py",),
    "ray": ("fleet/features/nodes/cluster/ray_client.py",),  # which no process of a run imports
    "rich": ("dashboards/*", "fleet/cli/*"),
    "sqlite3": ("fleet/runs/journal.py", "fleet/features/notify/outbox.py"),
    "textual": ("dashboards/terminal/*",),
    "tomli_w": ("fleet/config/toml.py",),
    "tomllib": ("fleet/config/toml.py", "agents/models/prices.py"),  # agents may not know fleet's
    "tree_sitter": ("agents/tools/outliner.py",),
    "typer": (
        "agents/simulated/verbs.py",
        "dashboards/metrics/*",
        "dashboards/report/*",
        "dashboards/web/*",
        "fleet/cli/*",
        "fleet/features/*",
    ),
}

NOT_LIKE_THEIR_DISTRIBUTION = {"agent-client-protocol": "acp", "gitpython": "git", "google-auth": "google"}

# Who reads the process's environment, and why. All other modules get values.
READS_ENVIRONMENT: dict[str, str] = {
    "agents/workers/acp_host.py": "what the box of an agent sets, to run the agent in",
    "fleet/config/environment.py": "the one reader",
    "fleet/features/nodes/cluster/actor.py": "what a machine of a Ray cluster gives the nodes that it starts",
    "worktrees/git/program.py": "PATH, to find git",
    "worktrees/sandbox/launcher.py": "PATH, for the program that starts boxes",
}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv"}
