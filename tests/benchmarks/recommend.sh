#!/usr/bin/env bash
# CPU seconds of `recommend` for 14,000 requests, and its answer, in a folder of its own.
set -euo pipefail
data=$PWD/sample_data folder=$(mktemp -d)
cd "$folder"
python - <<'END'
import random
chance = random.Random(1)
def trace(name, tokens):
    with open(name, "w") as file:
        print("TIMESTAMP,ContextTokens,GeneratedTokens", file=file)
        for row in range(14_000):
            print(f"2024-01-01 00:00:{row % 60:02d},{tokens()},256", file=file)
trace("mixed.csv", lambda: min(30_000, max(5, int(chance.lognormvariate(6, 1.2)))))
trace("long.csv", lambda: min(30_000, max(300, int(chance.lognormvariate(8.6, 0.8)))))
trace("short.csv", lambda: min(2_000, max(20, int(chance.lognormvariate(4.6, 0.7)))))
END
for source in mixed.csv long.csv short.csv "$data"; do
    chunkscope analyze "$source" -o "$(basename "${source%.csv}").json" >/dev/null 2>&1
done
TIMEFORMAT="   %U + %S s of CPU"
while read -r profile options; do
    echo "== $profile $options"
    # shellcheck disable=SC2086
    time chunkscope recommend "$profile.json" $options 2>/dev/null | head -n 3
done <<'END'
short --model llama-3.1-8b --gpu h100
mixed --model llama-3.1-8b --gpu h100
mixed --model gpt-oss-20b --gpu h100
long --model gemma-2-9b --gpu h100
long --model llama-3.1-70b --gpu h100 --tp 4
mixed --model llama-3.1-8b --gpu h100 --slo itl_p99=8ms
mixed --model llama-3.1-8b --gpu h100 --slo itl_p99=15ms
mixed --model llama-3.1-8b --gpu h100 --slo itl_p99=9ms --arrivals 100/s
mixed --model qwen2.5-1.5b --gpu l4 --slo itl_p99=15ms
mixed --model llama-3.1-8b --gpu h100 --slo tpot_p95=12ms --arrivals 20/s
mixed --model llama-3.1-8b --gpu l4 --slo tpot_p95=70ms,ttft_p95=5s
long --model llama-3.1-70b --gpu h100 --tp 4 --slo tpot_p95=40ms --arrivals 2/s
long --model gemma-2-9b --gpu h100 --slo tpot_p95=20ms --arrivals 2/s
long --model llama-3.2-1b --gpu l4 --slo itl_p99=20ms
sample_data --model llama-3.1-8b --gpu h100 --arrivals 60/s --slo ttft_p95=1s
END
