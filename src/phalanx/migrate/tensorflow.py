"""The distributed TensorFlow ResNet with SyncReplicasOptimizer, started by Slurm scripts."""

from phalanx.migrate import values
from phalanx.migrate.table import Example, Group, Row, System, lacking, needless, understood

LAYOUTS = {"channels_first": "machine.channels_last=false", "channels_last": "machine.channels_last=true"}

TRAIN = Group(
    "resnet_cifar_main.py, resnet_imagenet_main.py and their eval scripts",
    "train",
    (
        needless("--dataset", "what a path holds is recognised"),
        Row("--train_data_path, --data_dir", "--data {}", "cifar-10-batches-bin"),
        Row("--eval_data_path", "data.val={}", "test_batch.bin", "found by itself beside CIFAR's and ImageNet's files"),
        Row("--image_size", "data.image_size={}", "32"),
        Row("--log_root, --train_dir", "--out {}", "runs/mine", "one folder for checkpoints, events and logs"),
        needless("--eval_dir", "validation is part of the run's own folder"),
        Row(
            "--mode",
            "phalanx eval RUN",
            "eval",
            "--mode is something else here: sync, async or ssp:S",
            values={"train": "phalanx train"},
        ),
        Row("--eval_once", "phalanx eval RUN", "True"),
        lacking("--eval_batch_count", "every validation image is seen, once"),
        Row(
            "--num_gpus",
            "--gpus 0",
            "1",
            "a worker has one GPU",
            rewrite=values.first_gpus,
        ),
        Row("--batch_size", "--batch-size {}", "128"),
        Row("--learning_rate", "--lr {}", "0.1"),
        Row("--train_steps", "train.length={}st", "80000"),
        Row("--num_epochs", "--epochs {}", "90"),
        Row(
            "--sync_replicas",
            "--update-method pserver --mode sync",
            "True",
            values={"False": "--update-method pserver --mode async", "false": "--update-method pserver --mode async"},
        ),
        lacking(
            "--replicas_to_aggregate",
            "a step waits for every worker's gradient; where one is slow: --mode ssp:2 or --mode async",
        ),
        needless("--job_name, --task_index", "srun, mpirun or phalanx launch numbers the processes"),
        needless("--existing_servers", "servers are started with the job, and end with it"),
        Row("--data_format", "machine.channels_last=true", "channels_last", values=LAYOUTS),
        Row("--num_intra_threads", "machine.threads={}", "8"),
        needless("--num_inter_threads", "layers run one after the other"),
    ),
)

LAUNCH = Group(
    "hosts, and what the Slurm scripts ask for",
    "launch",
    (
        Row("--worker_hosts", "-n 2 --ips a,b", "node1:2222,node2:2222", rewrite=values.worker_hosts),
        Row("--ps_hosts", "-s 1 --servers-on a", "node3:2222", rewrite=values.server_hosts),
        Row("#SBATCH --nodes", "--launcher slurm --nodes {}", "9"),
        Row("#SBATCH --time", "--time {}", "2:30:00"),
        Row("#SBATCH --partition", "--partition {}", "normal"),
        Row("#SBATCH --account", "--account {}", "me"),
        Row("#SBATCH --constraint", "--directive=--constraint={}", "gpu"),
        Row("#SBATCH --gres", "--gpus-per-node 1", "gpu:1"),
        Row("#SBATCH --job-name", "name={}", "cifar", behind=True),
        needless("#SBATCH --output", "all that every process prints is in RUN/logs"),
        needless("#SBATCH --ntasks-per-node", "follows from -n, -s and --nodes"),
    ),
)

VARIABLES = Group(
    "TF_* of the scripts, TF_CONFIG, SLURM_*",
    "variables",
    (
        Row("TF_NUM_WORKERS", "phalanx launch -n {}", "4", "without one more for evaluation"),
        Row("TF_NUM_PS", "phalanx launch -s {}", "2"),
        Row("TF_PS_IN_WORKER", "phalanx launch --servers-on HOSTS", "false", "servers sit beside trainers by default"),
        needless("TF_WORKER_PER_NODE, TF_PS_PER_NODE", "spread evenly over the nodes"),
        needless("TF_SCRIPT, TF_FLAGS", "the command stands behind --"),
        Row(
            "TF_EVAL_SCRIPT, TF_EVAL_FLAGS",
            "--evaluator",
            note="a process of its own evaluates each checkpoint; `--evaluator-on HOST` of launch gives it a host",
        ),
        lacking("TF_CONFIG", "it is not read: Slurm's own variables say the same, or phalanx launch"),
        understood("SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_NTASKS", "`srun phalanx train …` works as it stands"),
        understood("SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE"),
        understood("SLURM_STEP_ID, SLURM_JOB_ID"),
        understood("SLURM_STEP_NODELIST, SLURM_JOB_NODELIST"),
        needless("SLURM_NODELIST, SLURM_JOB_NUM_NODES, SLURM_JOBID, SLURMD_NODENAME", "the others say enough"),
    ),
)

SYSTEM = System(
    "TensorFlow",
    "TensorFlow: the SyncReplicas ResNet on Slurm",
    "Parameter servers, workers and the evaluator become one command; `srun phalanx train …` in a script of your own "
    "works too. Its CIFAR network has 50 layers: `--model cifar_preact50`.",
    (TRAIN, LAUNCH, VARIABLES),
    (
        Example(
            "sbatch submit_cifar_daint_dist.sh 2 5   # 2 servers, 4 workers, 1 evaluator; --sync_replicas=True "
            "--batch_size=32 --train_steps=80000",
            "phalanx launch -n 4 -s 2 --launcher slurm --nodes 4 --time 2:30:00 -- train cifar10-resnet20 "
            "--model cifar_preact50 --data cifar-10-batches-bin --batch-size 32 train.length=80000st --evaluator",
        ),
        Example(
            "python resnet_cifar_main.py --job_name=worker --task_index=0 --ps_hosts=localhost:2222 "
            "--worker_hosts=localhost:2223,localhost:2224 --sync_replicas=True --batch_size=32 --train_steps=40",
            "phalanx train digits --update-method pserver --mode sync --servers 1 --workers 2 --batch-size 32 "
            "train.length=40st",
            "all processes of one machine",
            on_digits=True,
        ),
    ),
)
