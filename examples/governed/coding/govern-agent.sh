#!/bin/sh
# Runs a coding agent on project/, held to manifest.json: sh govern-agent.sh AGENT_COMMAND...
#
# It may change src/ and tests/, and read what else the manifest names. It may not touch .git or .github, so committing
# and CI stay with people. Where it tries to, it is ended, and src/ and tests/ are as they were before it began.
#
#   AGENT_HOME=DIR   where the agent is installed, when that is in your home: it may read and execute there
#   GOVERN="..."     further options of worldctl run, such as --keep (leave what a failing agent did), --trace, --permissive
set -eu
here=$(cd "$(dirname "$0")" && pwd)
manifest=$(sed "s/THIS-RUN/coder-$(date +%s)-$$/" "$here/manifest.json") # every run is a session of its own
export GIT_OPTIONAL_LOCKS=0 # git status and git diff look without writing to .git
cd "$here/project"
# shellcheck disable=SC2086 # GOVERN holds several words
exec worldctl --config "$here/world.toml" run --manifest "$manifest" --by coder --wait 300 --retry \
  --env GIT_OPTIONAL_LOCKS \
  --report "$here/last-run.json" ${AGENT_HOME:+--allow-read "$AGENT_HOME"} ${GOVERN:-} -- "$@"
