#!/usr/bin/env bash
# What `make demo` shows: index the sample corpus, then ask it three questions. The lake lies in data/lake.
set -euo pipefail
cd "$(dirname "$0")/.."
export GLOSSATOR_HOME=$PWD GLOSSATOR_LAKE=$PWD/data/lake

run() {
    printf '\n$ glossator'
    printf ' %s' "${@@Q}"
    printf '\n\n'
    glossator "$@"
}

run index data/corpus
run ask "What do I get for a week as primary on call?"
run ask "What is wrong when a gauge shows E-4021?"
printf '\n$ glossator ask 中秋聚会的头奖奖品由谁来决定？\n\n'
glossator ask "中秋聚会的头奖奖品由谁来决定？"
