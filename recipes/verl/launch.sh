#!/usr/bin/env bash
# launch.sh RECIPE DATA [override ...]: RECIPE is qwen2.5-3b or llama3.1-8b, DATA the folder that
# data.py wrote (in a Ray job its absolute path). Overrides are Hydra's.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,3s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$2/train.parquet" ]; then
  echo "error: $2 holds no train.parquet; write it with data.py, and give its absolute path in a Ray job" >&2
  exit 2
fi
data=$(cd "$2" && pwd)
method=lens seed=0  # every method and seed has a folder of its own, from which alone it resumes
for override in "${@:3}"; do
  case "$override" in
    method@algorithm.lens=*|algorithm.lens.method=*) method=${override#*=} ;;
    data.seed=*) seed=${override#*=} ;;
  esac
done
stop=()  # where the model's own list of end-of-sequence tokens lacks one
if [ -d "$here/stop/$1" ]; then
  stop=("+actor_rollout_ref.rollout.engine_kwargs.vllm.generation_config=$here/stop/$1")
fi
exec python3 -m verl.trainer.main_ppo --config-path "$here" --config-name "$1" \
  "data.train_files=$data/train.parquet" "data.val_files=$data/test.parquet" \
  "trainer.experiment_name=$1-$method-seed$seed" \
  "${stop[@]}" "${@:3}"
