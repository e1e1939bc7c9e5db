"""MXNet's image-classification examples (train_imagenet.py and its kin), tools/launch.py and dmlc-submit."""

from phalanx.migrate import values
from phalanx.migrate.table import Example, Group, Row, System, lacking, needless, understood

SYNC = "--update-method pserver --mode sync"
ASYNC = "--update-method pserver --mode async"
STORES = {
    "local": "--update-method collective",
    "device": "--update-method collective",
    "nccl": "--update-method collective",
    "horovod": "--update-method collective",
    "dist": SYNC,
    "dist_sync": SYNC,
    "dist_device_sync": SYNC,
    "dist_sync_device": SYNC,
    "dist_async": ASYNC,
    "dist_device_async": ASYNC,
    "dist_async_device": ASYNC,
}
PRECISIONS = {"float32": "--precision fp32", "float16": "--precision fp16", "bfloat16": "--precision bf16"}

TRAIN = Group(
    "train_imagenet.py, train_cifar10.py, train_mnist.py, fine-tune.py",
    "train",
    (
        Row("--network", "--model {}", "resnet", "MXNet's names work as they are"),
        Row(
            "--num-layers",
            "model.options.num_layers={}",
            "50",
            "with --model resnet, resnet-v1, resnext or vgg; or one name, such as --model resnet50. MXNet's resnet is "
            "pre-activation (resnetv2_50 here), and on tiny images 6n+2 layers deep (cifar_preact110); 50 and 152 are "
            "always those for photographs",
        ),
        Row("--gpus", "--gpus {}", "0,1", "one worker for each; leave it out for a CPU"),
        Row(
            "--kv-store",
            SYNC,
            "dist_sync",
            "or --update-method collective, which gives the same without servers",
            values=STORES,
        ),
        Row(
            "--batch-size",
            "--batch-size {}",
            "128",
            "ours is of one worker, and a worker has one GPU: divide by a machine's GPUs, or give --global-batch-size",
        ),
        Row("--macrobatch-size", "--global-batch-size {}", "1024"),
        Row("--num-epochs", "--epochs {}", "80"),
        Row("--lr", "--lr {}", "0.1"),
        Row("--lr-factor", "--lr-factor {}", "0.1"),
        Row(
            "--lr-step-epochs",
            "--lr-step-epochs {}",
            "30,60",
            "pow2 is --lr-schedule polynomial schedule.power=2",
            rewrite=values.steps,
        ),
        Row("--warmup-epochs", "--warmup-epochs {}", "5"),
        Row(
            "--warmup-strategy",
            "schedule.warmup_kind={}",
            "linear",
            values={
                "power2": "schedule.warmup_kind=power schedule.power=2",
                "lars": "--optimizer lars",
            },
        ),
        Row(
            "--initializer",
            "--initializer {}",
            "xavier",
            "uniform, one and zero are not here",
            values={
                "msra": "--initializer kaiming",
                "normal": "--initializer truncated-normal",
                "uniform": "--initializer xavier",
            },
        ),
        Row(
            "--optimizer",
            "--optimizer {}",
            "nag",
            "our sgd has Nesterov's momentum unless told otherwise",
            values={
                "sgd": "--optimizer sgd optim.nesterov=false",
                "nag": "--optimizer sgd optim.nesterov=true",
                "lbsgd": "--optimizer lars",
                "lars": "--optimizer lars",
                "lamb": "--optimizer lamb",
            },
        ),
        Row("--mom", "--momentum {}", "0.9"),
        Row("--wd", "--weight-decay {}", "0.0001"),
        Row("--disp-batches", "--log-every {}", "20"),
        Row("--model-prefix", "--out {}", "runs/mine", "a run's folder, with its checkpoints"),
        Row("--save-period", "checkpoint.every={}ep", "1", "checkpoint.keep_last=N keeps more than the last two"),
        Row("--load-epoch", "--resume RUN --at {}ep", "30", "without --at from the run's newest checkpoint"),
        Row(
            "--pretrained-model", "--init-from {} model.new_head=true", "weights.safetensors", "or --pretrained: timm's"
        ),
        needless("--layer-before-fullc", "a classifier of another shape is found by itself"),
        Row("--monitor", "--monitor {}", "100", "norms of weights and gradients"),
        Row("--top-k", "--top-k {}", "5"),
        needless("--loss", "the cross-entropy is always reported"),
        Row("--test-io", "phalanx bench io DATA", "1", "input alone, beside other loaders"),
        Row("--dtype", "--precision fp16", "float16", values=PRECISIONS),
        Row("--gc-type", "--compress {}", "2bit"),
        Row(
            "--gc-threshold",
            "--compress 2bit:{}",
            "0.5",
            "gradients are means here and were sums there: divide by the batch, or write 2bit alone, which finds a "
            "threshold for each layer",
        ),
        lacking(
            "--profile-worker-suffix, --profile-server-suffix", "events.jsonl holds what each part of a step takes"
        ),
        Row("--data-train", "--data {}", "train.rec"),
        Row("--data-val", "data.val={}", "val.rec"),
        needless("--data-train-idx, --data-val-idx", "an index beside the file is found, and made where it is missing"),
        Row("--data-nthreads", "data.threads={}", "4"),
        Row("--benchmark", "--data synthetic", "1", "`phalanx bench train` measures beside other systems"),
        needless("--num-classes, --num-examples", "classes and images are counted in the data"),
        Row(
            "--image-shape, --image_shape",
            "data.image_size={}",
            "3,224,224",
            rewrite=values.image_shape,
        ),
        Row("--rgb-mean", "data.mean=[{}]", "123.68,116.779,103.939", "shares of 255", rewrite=values.mean_of_bytes),
        Row("--rgb-std", "data.std=[{}]", "58.393,57.12,57.375", "shares of 255", rewrite=values.std_of_bytes),
        Row("--pad-size", "augment.crop=pad augment.pad={}", "4", values={"0": "augment.crop=none"}),
        lacking("--fill-value", "padding is black, or augment.pad_mode=reflect"),
        Row(
            "--random-crop",
            "augment.crop=random-resized",
            "1",
            "of random size too; with padding: augment.crop=pad",
            values={"0": "augment.crop=none"},
        ),
        Row("--random-resized-crop", "augment.crop=random-resized", "1", values={"0": "augment.crop=none"}),
        Row("--random-mirror", "augment.flip=0.5", "1", values={"0": "augment.flip=0"}),
        Row("--min-random-area", "augment.scale=[{},1.0]", "0.08"),
        Row("--max-random-area", "augment.scale=[0.08,{}]", "1"),
        Row("--min-random-aspect-ratio", "augment.ratio=[{},1.333]", "0.75"),
        Row("--max-random-aspect-ratio", "augment.ratio=[{}]", "0.25", rewrite=values.aspect_ratio),
        Row("--max-random-h", "augment.hue={}", "36", rewrite=values.hue),
        Row("--max-random-s", "augment.saturation=0.2", "50", "a factor here: 50 of 255 is about 0.2"),
        Row("--max-random-l", "augment.brightness=0.2", "50", "a factor here: 50 of 255 is about 0.2"),
        Row("--brightness", "augment.brightness={}", "0.4"),
        Row("--contrast", "augment.contrast={}", "0.4"),
        Row("--saturation", "augment.saturation={}", "0.4"),
        lacking("--pca-noise", "noise of colours is not here; augment.hue and the like are"),
        Row("--max-random-rotate-angle", "augment.rotate={}", "10"),
        lacking("--max-random-shear-ratio", "augment.policy=randaugment shears images among other things"),
        lacking("--min-random-scale, --max-random-scale", "augment.scale is the area of a random-resized crop"),
        lacking("--min-crop-size, --max-crop-size", "augment.scale is the area of a random-resized crop"),
        Row(
            "--use-imagenet-data-augmentation",
            "augment.crop=random-resized augment.flip=0.5 augment.brightness=0.4 augment.contrast=0.4 "
            "augment.saturation=0.4",
            "1",
            "without noise of colours",
        ),
        lacking("--add_stn", "no network here has a spatial transformer"),
    ),
)

LAUNCH = Group(
    "tools/launch.py and dmlc-submit",
    "launch",
    (
        Row("-n, --num-workers", "-n {}", "4"),
        Row("-s, --num-servers", "-s {}", "2"),
        Row("-H, --hostfile, --host-file", "-H {}", "hosts"),
        Row(
            "--launcher, --cluster",
            "--launcher {}",
            "ssh",
            "also pbs, ray, srun, qrsh",
            values={"kubernetes": "--launcher k8s", "mesos": "--launcher k8s"},
        ),
        Row("--sync-dst-dir", "--sync-dst-dir {}", "code"),
        needless(
            "--env", "variables of OMP, MKL, NCCL, GLOO and torch go along; others: --setup or your shell's profile"
        ),
        lacking("--env-server, --env-worker", "all processes of a job have the same variables"),
        needless("--p3", "slices are small, and travel while backward still runs"),
        Row("--worker-cores", "--cpus-per-worker {}", "4"),
        Row("--worker-memory", "--memory-per-worker {}", "4g", "in MB", rewrite=values.megabytes),
        lacking("--server-cores, --server-memory", "what servers get cannot be asked for separately"),
        Row("--jobname", "name={}", "mine", behind=True),
        Row("--queue", "--partition {}", "default"),
        needless("--log-level, --log-file", "all that every process prints is in RUN/logs; `phalanx logs`"),
        Row("--sge-log-dir", "--log-dir {}", "logs", "a log for each process; without it in RUN/logs"),
        needless("--host-ip", "found by the route to the hosts; --iface names another interface"),
        needless("--hdfs-tempdir, --auto-file-cache", "a recipe's file is sent along; --sync-dst-dir sends code"),
        needless("--files, --archives, --ship-libcxx", "a recipe's file is sent along; --sync-dst-dir sends code"),
        needless("--yarn-app-classpath, --yarn-app-dir", "YARN is asked through its REST interface, without Java"),
        lacking("--mesos-master", "there is no launcher for Mesos; Kubernetes, YARN and Ray have one"),
        Row("--slurm-worker-nodes", "--launcher slurm --nodes {}", "2"),
        lacking("--slurm-server-nodes", "servers sit beside trainers; --servers-on HOSTS where hosts are named"),
        Row("--kube-namespace", "--namespace {}", "default"),
        Row("--kube-worker-image, --kube-server-image", "--image {}", "mine:latest", "one image for all"),
        lacking(
            "--kube-worker-template, --kube-server-template",
            "`--patch FILE` of --launcher k8s changes its Job",
        ),
        Row("--local-num-attempt", "--max-restarts {}", "2"),
    ),
)

VARIABLES = Group(
    "DMLC_*, PS_* and MXNET_*",
    "variables",
    (
        understood("DMLC_ROLE", "worker, server or scheduler"),
        understood("DMLC_NUM_WORKER, DMLC_NUM_SERVER"),
        understood("DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT"),
        understood("DMLC_WORKER_ID, DMLC_SERVER_ID", "where they are missing, ranks are given when all have met"),
        understood("DMLC_NODE_HOST"),
        needless("DMLC_INTERFACE", "found by the route to the scheduler"),
        needless(
            "DMLC_TASK_ID, DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_JOB_ARCHIVES, DMLC_HDFS_OPTS, "
            "DMLC_LOG_STACK_TRACE_DEPTH",
            "they belong to DMLC's own tracker",
        ),
        Row("DMLC_JOB_CLUSTER, DMLC_SUBMIT_CLUSTER", "phalanx launch --launcher {}", "slurm"),
        Row("DMLC_NUM_ATTEMPT, DMLC_MAX_ATTEMPT", "--max-restarts {}", "2"),
        needless(
            "DMLC_WORKER_CORES, DMLC_SERVER_CORES, DMLC_WORKER_MEMORY_MB, DMLC_SERVER_MEMORY_MB",
            "a launcher's flags say what a worker gets: --cpus-per-worker, --memory-per-worker",
        ),
        needless("PS_VERBOSE", "RUN/logs holds what servers print"),
        needless(
            "PS_RESEND, PS_RESEND_TIMEOUT", "messages are sent again by themselves; exchange.timeout_s is the limit"
        ),
        Row("MXNET_CPU_WORKER_NTHREADS, OMP_NUM_THREADS", "machine.threads={}", "8"),
        Row("MXNET_MP_WORKER_NTHREADS, MXNET_MP_OPENCV_NUM_THREADS", "data.threads={}", "4"),
        Row("MXNET_ENFORCE_DETERMINISM", "machine.deterministic=true", "1"),
        Row("MXNET_USE_FUSION", "machine.compile=true", "1"),
        Row(
            "MXNET_CUDNN_AUTOTUNE_DEFAULT, MXNET_USE_OPERATOR_TUNING, MXNET_ENABLE_OPERATOR_TUNING",
            "--fast-path auto",
            "1",
            "on a CPU, the fastest form of each layer is found by timing",
            values={"0": "--fast-path off"},
        ),
        lacking("MXNET_BACKWARD_DO_MIRROR", "activations are kept, not computed again: take smaller micro-batches"),
        lacking("MXNET_PROFILER_AUTOSTART, MXNET_PROFILER_MODE", "events.jsonl holds what each part of a step takes"),
        needless("MXNET_UPDATE_ON_KVSTORE", "workers and servers share one update"),
        needless(
            "MXNET_KVSTORE_BIGARRAY_BOUND, MXNET_KVSTORE_REDUCTION_NTHREADS, MXNET_KVSTORE_SLICE_THRESHOLD, "
            "MXNET_KVSTORE_USETREE, MXNET_KVSTORE_LOGTREE, MXNET_KVSTORE_TREE_ARRAY_BOUND, "
            "MXNET_KVSTORE_TREE_BACKTRACK, MXNET_KVSTORE_TREE_LINK_USAGE_PENALTY, MXNET_ENABLE_GPU_P2P",
            "parameters are cut into even slices; gloo and NCCL find their own way",
        ),
        needless(
            "MXNET_ENGINE_TYPE, MXNET_EXEC_BULK_EXEC_TRAIN, MXNET_EXEC_BULK_EXEC_INFERENCE, "
            "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN, MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD, "
            "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD, MXNET_EXEC_ENABLE_INPLACE, MXNET_EXEC_NUM_TEMP, "
            "NNVM_EXEC_MATCH_RANGE, MXNET_ELIMINATE_COMMON_EXPR, MXNET_FUSION_VERBOSE, "
            "MXNET_OPTIMIZER_AGGREGATION_SIZE, "
            "MXNET_SAFE_ACCUMULATION, MXNET_FC_TRUE_FP16, MXNET_STORAGE_FALLBACK_LOG_VERBOSE",
            "they steer MXNet's own engine",
        ),
        needless(
            "MXNET_GPU_MEM_POOL_TYPE, MXNET_GPU_MEM_POOL_RESERVE, MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF, "
            "MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE, MXNET_GPU_WORKER_NTHREADS, MXNET_GPU_WORKER_NSTREAMS, "
            "MXNET_GPU_COPY_NTHREADS, MXNET_GPU_TEMP_COPY, MXNET_GPU_PARALLEL_RAND_COPY, "
            "MXNET_GPU_CUDNN_DROPOUT_STATE_COPY, MXNET_CUDA_ALLOW_TENSOR_CORE, "
            "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION, MXNET_CUDA_LIB_CHECKING, MXNET_CUDNN_LIB_CHECKING, "
            "MXNET_ENABLE_CUDA_GRAPHS, MXNET_CUDA_GRAPHS_VERBOSE, MXNET_CUDA_GRAPHS_MAX_LOG_ENTRIES",
            "on a GPU PyTorch decides it",
        ),
        needless(
            "MXNET_CPU_TEMP_COPY, MXNET_CPU_PRIORITY_NTHREADS, MXNET_CPU_PARALLEL_SIZE, MXNET_CPU_PARALLEL_RAND_COPY, "
            "MXNET_CPU_NNPACK_NTHREADS, MXNET_USE_NUM_CORES_OPERATOR_TUNING, MXNET_MKLDNN_ENABLED, "
            "MXNET_MKLDNN_CACHE_NUM, MXNET_MKLDNN_FORCE_FC_AB_FORMAT, MXNET_USE_MKLDNN_RNN, MXNET_SUBGRAPH_BACKEND",
            "`phalanx doctor` shows what was chosen for this CPU",
        ),
        needless(
            "MXNET_HOME, MXNET_LIBRARY_PATH, MXNET_GLUON_REPO, MXNET_ENABLE_CYTHON, MXNET_ENFORCE_CYTHON",
            "they say where MXNet itself is",
        ),
    ),
)

SYSTEM = System(
    "MXNet",
    "MXNet: train_imagenet.py and launch.py",
    "`phalanx launch` takes the place of `tools/launch.py`, with the same `-n`, `-s`, `-H`. A job whose processes are "
    "started with DMLC_* by something else keeps its script: `phalanx train …` in place of `python train_imagenet.py "
    "…`.",
    (TRAIN, LAUNCH, VARIABLES),
    (
        Example(
            "python train_mnist.py --network lenet --num-epochs 2 --lr 0.02 --disp-batches 20 --initializer xavier",
            "phalanx train digits --model lenet --epochs 2 --lr 0.02 --log-every 20 --initializer xavier",
            "MNIST's own files: `phalanx data fetch mnist`, then --data",
            on_digits=True,
        ),
        Example(
            "python tools/launch.py -n 4 -s 4 -H hosts python train_imagenet.py --network resnet --num-layers 50 "
            "--data-train train.rec --data-val val.rec --kv-store dist_sync --gc-type 2bit --batch-size 64 --mom 0.9 "
            "--wd 0.0001 --lr-step-epochs 30,60",
            "phalanx launch -n 4 -s 4 --ips node1,node2 -- train --model resnet model.options.num_layers=50 "
            "--data train.rec data.val=val.rec --compress 2bit --batch-size 64 --momentum 0.9 --weight-decay 0.0001 "
            "--lr-step-epochs 30,60",
            "-s chooses the parameter server; -H hosts works as well",
        ),
        Example(
            "python train_cifar10.py --network resnet --num-layers 110 --gpus 0,1 --kv-store device",
            "phalanx train cifar10-resnet20 --model resnet model.options.num_layers=110 --gpus 0,1",
        ),
    ),
)
