"""tensorpack's ImageNet ResNet with Horovod, its data server, horovodrun and mpirun."""

from phalanx.migrate.table import Example, Group, Row, System, lacking, needless, understood


def _depth_of_units(text: str) -> str:
    return f"--model cifar_preact{6 * int(text) + 2}"


TRAIN = Group(
    "imagenet-resnet-horovod.py, imagenet-resnet.py, cifar10-resnet.py",
    "train",
    (
        Row("--data", "--data {}", "imagenet"),
        Row("-d, --depth", "--model resnet{}", "50"),
        Row(
            "--mode",
            "--model resnet50",
            "preact",
            "--mode is something else here: sync, async or ssp:S",
            values={
                "preact": "--model resnetv2_50",
                "se": "--model seresnet50",
                "resnext32x4d": "--model resnext50_32x4d",
            },
        ),
        Row("--norm", "--model resnet50_gn", "GN", values={"BN": "--model resnet50", "bn": "--model vgg16_bn"}),
        Row("-n, --num-units", "--model cifar_preact32", "5", rewrite=_depth_of_units),
        Row(
            "--batch",
            "--batch-size {}",
            "64",
            "of one worker, as in imagenet-resnet-horovod.py; in imagenet-resnet.py it was of all: --global-batch-size",
        ),
        Row("--accum-grad", "optim.accumulate={}", "2"),
        Row("--weight-decay-norm", "optim.decay_norm_and_bias=true"),
        Row("--fake", "--data synthetic"),
        Row("--gpu", "--gpus {}", "0,1"),
        Row("--logdir", "--out {}", "runs/mine"),
        Row("--load", "--init-from {}", "weights.safetensors", "tensorpack's own files are not read"),
        Row("--eval", "phalanx eval RUN"),
        needless("--validation", "all workers evaluate together; or --evaluator, in a process of its own"),
        needless("--no-zmq-ops", "batches travel by ZeroMQ anyway"),
        needless("--symbolic", "there is one input pipeline"),
        Row(
            "--data-format",
            "machine.channels_last=true",
            "NHWC",
            values={"NCHW": "machine.channels_last=false"},
        ),
    ),
)

SERVE = Group(
    "serve-data.py: the data server",
    "serve-data",
    (
        Row("--data", "--data {}", "imagenet"),
        Row("--fake", "--data synthetic"),
        needless("--batch", "trainers ask for the batches that they need"),
        Row("--benchmark", "phalanx bench io DATA"),
        needless("--no-zmq-ops", "batches travel by ZeroMQ anyway"),
        Row("--port", "--bind 0.0.0.0:{}", "7300", "trainers elsewhere need the key: --key-file"),
    ),
)

LAUNCH = Group(
    "horovodrun and mpirun",
    "launch",
    (
        Row("-np, --np, --num-proc", "-n {}", "8"),
        Row(
            "--hosts, -host, --host",
            "--ips {}",
            "host1:8,host2:8",
            "-H is a file here: mpirun's -H a:8,b:8 is --ips a:8,b:8",
        ),
        Row("-hostfile, --hostfile, -machinefile", "-H {}", "hosts"),
        needless("-x", "variables of OMP, MKL, NCCL, GLOO and torch go along; others: --setup or your shell's profile"),
        Row("-p, --ssh-port", "--ssh 'ssh -p {}'", "2222"),
        Row("-i, --ssh-identity-file", "--ssh 'ssh -i {}'", "key"),
        Row("--network-interface, --network-interfaces", "--iface {}", "eth0", "one"),
        Row("--min-np, --min-num-proc", "--min-workers {}", "4"),
        lacking("--max-np, --max-num-proc", "a job never has more workers than it was started with"),
        Row("--reset-limit", "--max-restarts {}", "3"),
        lacking("--host-discovery-script", "hosts are those of the list; a lost one is replaced by a free one of it"),
        needless("--slots-per-host", "in the list: host1 slots=8, or host1:8"),
        lacking("--blacklist-cooldown-range", "a lost host is not used again"),
        Row("--elastic-timeout, --gloo-timeout-seconds", "exchange.timeout_s={}", "600", behind=True),
        needless("--start-timeout", "a host that cannot be reached is told at once"),
        Row("--output-filename", "--log-dir {}", "logs", "a log for each process; without it in RUN/logs"),
        needless("--tag-output, -tag-output", "each line names its role and host"),
        needless(
            "-prefix-timestamp, --prefix-output-with-timestamp, --log-with-timestamp, --log-without-timestamp, "
            "--log-hide-timestamp, --no-log-hide-timestamp, --log-level, --verbose",
            "events.jsonl has the time of everything",
        ),
        needless("--disable-cache, -cb, --check-build", "`phalanx doctor` says what works here"),
        lacking("--config-file", "flags say it all; a recipe's file says how to train"),
        Row("--mpi", "--launcher mpi"),
        needless("--gloo", "gloo and NCCL are chosen by the device"),
        lacking("--jsrun", "there is no launcher for LSF"),
        Row(
            "--mpi-args",
            "--launcher mpi --mpirun 'mpirun {}'",
            "--mca pml ob1",
        ),
        needless(
            "-bind-to, --bind-to, --binding-args, -map-by, --map-by, -mca, --mca",
            "agents are not bound; --mpirun 'mpirun …' adds options",
        ),
        needless("--tcp", "whatever the network offers is used; NCCL_IB_DISABLE=1 turns InfiniBand off"),
        needless(
            "--fusion-threshold-mb, --cycle-time-ms, --cache-capacity, --hierarchical-allreduce, "
            "--no-hierarchical-allreduce, --hierarchical-allgather, --no-hierarchical-allgather, --num-nccl-streams, "
            "--thread-affinity, --mpi-threads-disable, --no-mpi-threads-disable",
            "gradients travel in buckets while backward still runs",
        ),
        needless(
            "--autotune, --no-autotune, --autotune-log-file, --autotune-warmup-samples, --autotune-steps-per-sample, "
            "--autotune-bayes-opt-max-samples, --autotune-gaussian-process-noise",
            "there is nothing to tune",
        ),
        lacking(
            "--timeline-filename, --timeline-mark-cycles, --no-timeline-mark-cycles",
            "events.jsonl holds what each part of a step takes",
        ),
        needless("--no-stall-check, --stall-check", "who is waited for is always told"),
        Row(
            "--stall-check-warning-time-seconds, --stall-check-shutdown-time-seconds",
            "exchange.timeout_s={}",
            "300",
            behind=True,
        ),
    ),
)

VARIABLES = Group(
    "OMPI_*, PMI_*, HOROVOD_*, TENSORPACK_*",
    "variables",
    (
        understood("OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE", "`mpirun -np 4 phalanx train …` works as it stands"),
        understood("OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE"),
        understood("PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS", "MPICH, Intel MPI"),
        understood("RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT", "torchrun"),
        lacking(
            "HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE", "use mpirun, srun or phalanx launch"
        ),
        needless(
            "HOROVOD_FUSION_THRESHOLD, HOROVOD_CYCLE_TIME, HOROVOD_CACHE_CAPACITY, HOROVOD_HIERARCHICAL_ALLREDUCE, "
            "HOROVOD_HIERARCHICAL_ALLGATHER, HOROVOD_NUM_NCCL_STREAMS, HOROVOD_MPI_THREADS_DISABLE, "
            "HOROVOD_CCL_BGT_AFFINITY, HOROVOD_THREAD_AFFINITY, HOROVOD_CONTROLLER, HOROVOD_CPU_OPERATIONS, "
            "HOROVOD_GPU_OPERATIONS, HOROVOD_GPU_ALLREDUCE, HOROVOD_GPU_BROADCAST",
            "gradients travel in buckets while backward still runs, by gloo or NCCL",
        ),
        needless(
            "HOROVOD_AUTOTUNE, HOROVOD_AUTOTUNE_LOG, HOROVOD_AUTOTUNE_WARMUP_SAMPLES, "
            "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE, "
            "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES, HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
            "there is nothing to tune",
        ),
        lacking("HOROVOD_TIMELINE, HOROVOD_TIMELINE_MARK_CYCLES", "events.jsonl holds what each part of a step takes"),
        Row(
            "HOROVOD_STALL_CHECK_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, HOROVOD_GLOO_TIMEOUT_SECONDS, "
            "HOROVOD_ELASTIC_TIMEOUT",
            "exchange.timeout_s={}",
            "300",
        ),
        needless("HOROVOD_STALL_CHECK_DISABLE, HOROVOD_START_TIMEOUT", "who is waited for is always told"),
        needless("HOROVOD_LOG_LEVEL, HOROVOD_LOG_HIDE_TIME", "events.jsonl has the time of everything"),
        Row("TENSORPACK_PROGRESS_REFRESH", "--log-every {}", "20", "steps, not seconds"),
        needless("TENSORPACK_DATASET", "--data names the place; `phalanx data fetch` brings CIFAR and MNIST"),
        needless(
            "TENSORPACK_PIPEDIR, TENSORPACK_SERIALIZE, TENSORPACK_ONCE_SERIALIZE",
            "nothing is pickled, and no pipe is left",
        ),
        needless("NCCL_DEBUG, NCCL_IB_CUDA_SUPPORT, NCCL_IB_DISABLE", "NCCL reads it here as well"),
    ),
)

SYSTEM = System(
    "tensorpack with Horovod",
    "tensorpack with Horovod",
    "`mpirun -np 8 phalanx train …` works in place of `mpirun -np 8 python imagenet-resnet-horovod.py …`; `phalanx "
    "launch` needs no MPI. `phalanx serve-data` takes the place of serve-data.py, for trainers on any host. The rate "
    "rule of its scripts, 0.1 for 256 images, is `optim.lr=0.1 optim.lr_per=256`, in the recipe imagenet-resnet50.",
    (TRAIN, SERVE, LAUNCH, VARIABLES),
    (
        Example(
            "./serve-data.py --data ~/data/imagenet --batch 64\n"
            "mpirun -np 8 python3 ./imagenet-resnet-horovod.py -d 50 --data ~/data/imagenet --batch 64 "
            "--validation distributed",
            "phalanx train imagenet-resnet50 --data ~/data/imagenet --workers 8 --batch-size 64 --data-servers 1",
            "one command; a data server of another host: phalanx serve-data there, --data-service HOST:PORT here",
        ),
        Example(
            "mpirun -np 16 -H host1:8,host2:8 -x PATH python3 ./imagenet-resnet-horovod.py -d 50 --data imagenet",
            "phalanx launch -n 16 --ips host1:8,host2:8 -- train imagenet-resnet50 --data imagenet --model resnet50",
        ),
        Example(
            "horovodrun -np 2 python3 ./imagenet-resnet-horovod.py --fake --batch 32 --accum-grad 2",
            "phalanx train digits --workers 2 --batch-size 32 optim.accumulate=2 --epochs 1",
            "--data synthetic in place of digits is its --fake",
            on_digits=True,
        ),
    ),
)
