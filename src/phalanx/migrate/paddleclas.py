"""PaddleClas: tools/train.py with its YAML files, and paddle.distributed.launch."""

from phalanx.migrate import values
from phalanx.migrate.table import Example, Group, Row, System, lacking, needless

LAYOUTS = {"NCHW": "machine.channels_last=false", "NHWC": "machine.channels_last=true"}
ON_TRAIN = "DataLoader.Train.dataset"
ON_EVAL = "DataLoader.Eval.dataset"
OPS = f"{ON_TRAIN}.transform_ops"
EVAL_OPS = f"{ON_EVAL}.transform_ops"
MIX = f"{ON_TRAIN}.batch_transform_ops"


def _override(text: str) -> str:
    """`Global.epochs=10` → what that setting is here."""
    key, _, value = text.partition("=")
    found = key_row(key)
    if found is None:
        return "KEY=VALUE"
    return found.translate(value or None) or f"(nothing: {found.note})"


def key_row(key: str) -> Row | None:
    """The row of a setting, whatever list of operations it stands in."""
    parts = [part for part in key.split(".") if not part.isdecimal()]
    plain = ".".join(parts)
    for row in KEYS.rows:
        for name in row.names:
            if name == plain or (name.endswith(".*") and plain.startswith(name[:-1])):
                return row
    return None


TRAIN = Group(
    "tools/train.py, tools/eval.py",
    "train",
    (
        Row("-c, --config", "{}", "digits", "a recipe or a file of ours: its keys are those of the right column below"),
        Row("-o, --override", "KEY=VALUE", "Global.epochs=10", "the keys are below", rewrite=_override),
        lacking("-p, --profiler_options", "events.jsonl holds what each part of a step takes"),
    ),
)

KEYS = Group(
    "keys of its YAML files",
    "keys",
    (
        Row("Global.epochs", "train.length={}ep", "120"),
        Row("Global.checkpoints", "--resume {}", "runs/mine", "a run's newest; RUN/checkpoints/step-N is a chosen one"),
        Row("Global.pretrained_model", "--init-from {}", "weights.safetensors", "Paddle's own files are not read"),
        Row("Global.output_dir", "--out {}", "runs/mine"),
        Row(
            "Global.device",
            "machine.device={}",
            "gpu",
            values={"gpu": "machine.device=cuda", "cpu": "machine.device=cpu"},
        ),
        Row("Global.save_interval", "checkpoint.every={}ep", "1"),
        Row("Global.eval_during_train", "eval.every=1ep", "False", values={"False": "eval.every=100%"}),
        Row("Global.eval_interval", "eval.every={}ep", "1"),
        lacking("Global.start_eval_epoch", "evaluation starts with the first epoch; eval.every=5ep makes it rarer"),
        Row("Global.print_batch_step", "train.log_every={}", "10"),
        lacking("Global.use_visualdl", "RUN/curves.png, RUN/events.jsonl and `phalanx plot` show the same"),
        Row("Global.image_shape", "data.image_size={}", "[3, 224, 224]", rewrite=values.image_shape),
        Row("Global.image_channel, Arch.input_image_channel", "data.channels={}", "3", "1 or 3"),
        Row("Global.save_inference_dir", "phalanx export RUN --out {}", "inference"),
        Row("Global.to_static", "machine.compile=true", "True", values={"False": "machine.compile=false"}),
        Row("Global.update_freq", "optim.accumulate={}", "4"),
        Row("Global.seed", "train.seed={}", "1"),
        needless("Global.use_dali", "JPEGs are decoded by native code, on the CPU"),
        needless("Global.class_num, Arch.class_num", "classes are counted in the data"),
        needless(
            "Global.distributed, Global.log_ranks",
            "the first trainer speaks for all; `phalanx logs RUN` has the others",
        ),
        lacking(
            "Global.iter_per_epoch, Global.warmup_iter",
            "an epoch is all images once; durations are 90ep, 5000st or 10%",
        ),
        lacking("Global.print_mem_info", "no memory is shown"),
        lacking(
            "Global.train_mode, Global.eval_mode, Global.feature_normalize, Global.feature_binarize, "
            "Global.re_ranking, "
            "Global.retrieval_feature_from, Global.sim_block_size",
            "Phalanx classifies",
        ),
        Row(
            "Global.use_multilabel",
            "data.multi_label=true",
            "True",
            "BCE, and mAP instead of the Hamming distance",
            values={"False": "data.multi_label=false"},
        ),
        lacking(
            "Global.export_for_fd, Global.hpi_config_path, Global.pdx_model_name, Global.uniform_output_enabled",
            "`phalanx export` writes safetensors, torch.export and ONNX",
        ),
        Row(
            "AMP.use_amp",
            "machine.precision=fp16",
            "True",
            "bf16 where the machine has it",
            values={"False": "machine.precision=fp32"},
        ),
        needless(
            "AMP.level, AMP.scale_loss, AMP.use_dynamic_loss_scaling, AMP.use_fp16_test, AMP.use_promote",
            "weights and updates are float32, and the loss scale follows the gradients",
        ),
        Row("Arch.name", "model.name={}", "PPLCNet_x1_0", "Paddle's names of what is also here work as they are"),
        Row(
            "Arch.pretrained",
            "model.pretrained=true",
            "True",
            "timm's published weights",
            values={"False": "model.pretrained=false"},
        ),
        Row("Arch.drop_rate, Arch.dropout, Arch.classifier_dropout", "model.drop={}", "0.2"),
        Row("Arch.drop_path_rate, Arch.override_params.drop_connect_rate", "model.drop_path={}", "0.1"),
        Row("Arch.data_format", "machine.channels_last=true", "NHWC", values=LAYOUTS),
        Row("Arch.use_sync_bn", "exchange.sync_bn=true", "True", values={"False": "exchange.sync_bn=false"}),
        lacking(
            "Arch.models.*, Arch.infer_model_name, Arch.freeze_params_list, Arch.pretrained_list, Arch.use_ssld",
            "there is no distillation",
        ),
        lacking(
            "Arch.override_params.*, Arch.head_init_scale, Arch.layer_scale_init_value, Arch.use_fused_attn, "
            "Arch.use_fused_linear",
            "what timm's constructor takes: model.options.NAME=VALUE",
        ),
        needless("Loss.Train.CELoss.weight, Loss.Eval.*", "one loss, with weight 1"),
        Row("Loss.Train.CELoss.epsilon", "loss.label_smoothing={}", "0.1"),
        lacking("Loss.Train.*", "loss.name is cross_entropy, bce, or your own"),
        Row(
            "Optimizer.name",
            "optim.name={}",
            "Momentum",
            "our sgd has Nesterov's momentum unless told otherwise",
            values={
                "Momentum": "optim.name=sgd optim.nesterov=false",
                "SGD": "optim.name=sgd optim.momentum=0 optim.nesterov=false",
                "Adam": "optim.name=adam",
                "AdamW": "optim.name=adamw",
                "RMSProp": "optim.name=rmsprop",
            },
        ),
        Row("Optimizer.momentum", "optim.momentum={}", "0.9"),
        Row("Optimizer.use_nesterov", "optim.nesterov=true", "True", values={"False": "optim.nesterov=false"}),
        Row("Optimizer.beta1", "optim.options.betas=[{},0.999]", "0.9"),
        Row("Optimizer.beta2", "optim.options.betas=[0.9,{}]", "0.999"),
        Row("Optimizer.epsilon", "optim.options.eps={}", "1.0e-8"),
        Row("Optimizer.rho", "optim.options.alpha={}", "0.9"),
        Row("Optimizer.weight_decay, Optimizer.regularizer.coeff", "optim.weight_decay={}", "0.0001"),
        needless("Optimizer.regularizer.name", "weight decay, in the optimizer's own way"),
        Row(
            "Optimizer.one_dim_param_no_weight_decay, Optimizer.no_weight_decay_name",
            "optim.decay_norm_and_bias=false",
            "True",
        ),
        Row("Optimizer.clip_norm, Optimizer.clip_grad", "optim.clip_norm={}", "5.0"),
        needless("Optimizer.multi_precision", "weights and updates are float32"),
        Row("Optimizer.lr.learning_rate", "optim.lr={}", "0.1"),
        Row(
            "Optimizer.lr.name",
            "schedule.kind=cosine",
            "Cosine",
            values={
                "Piecewise": "schedule.kind=step schedule.milestones=[30ep,60ep,90ep]",
                "MultiStepDecay": "schedule.kind=step schedule.milestones=[30ep,60ep,90ep]",
                "Step": "schedule.kind=step schedule.every=30ep",
                "Linear": "schedule.kind=polynomial schedule.power=1",
                "Polynomial": "schedule.kind=polynomial",
                "Constant": "schedule.kind=constant",
                "ConstLearning": "schedule.kind=constant",
            },
        ),
        Row(
            "Optimizer.lr.decay_epochs, Optimizer.lr.milestones",
            "schedule.milestones=[{}]",
            "[30, 60, 90]",
            rewrite=values.milestones,
        ),
        Row("Optimizer.lr.values", "schedule.factor={}", "[0.1, 0.01, 0.001]", rewrite=values.factor),
        Row("Optimizer.lr.gamma", "schedule.factor={}", "0.97"),
        Row("Optimizer.lr.step_size", "schedule.every={}ep", "2.4"),
        Row("Optimizer.lr.warmup_epoch", "schedule.warmup={}ep", "5"),
        Row(
            "Optimizer.lr.warmup_start_lr",
            "schedule.warmup_start=0.01",
            "0.001",
            "a share of the rate here, not a rate",
        ),
        Row(
            "Optimizer.lr.eta_min, Optimizer.lr.end_lr",
            "schedule.floor=0.01",
            "0.001",
            "a share of the rate here, not a rate",
        ),
        needless("Optimizer.lr.by_epoch, Optimizer.lr.step_each_epoch", "durations say their unit: 90ep, 5000st, 10%"),
        Row("EMA.decay", "optim.ema={}", "0.9998"),
        Row(
            f"{ON_TRAIN}.image_root, {ON_TRAIN}.cls_label_path",
            "data.source={}",
            "train_list.txt",
            "a list of files and labels, or a folder",
        ),
        Row(f"{ON_EVAL}.image_root, {ON_EVAL}.cls_label_path", "data.val={}", "val_list.txt"),
        needless(f"{ON_TRAIN}.name, {ON_EVAL}.name", "what a path holds is recognised"),
        needless(f"{OPS}.DecodeImage.*, {EVAL_OPS}.DecodeImage.*", "images are RGB"),
        Row(f"{OPS}.RandCropImage.size", "augment.crop=random-resized data.image_size={}", "224"),
        Row(f"{OPS}.RandCropImage.scale", "augment.scale={}", "[0.08,1.0]"),
        Row(f"{OPS}.RandCropImage.ratio", "augment.ratio={}", "[0.75,1.333]"),
        Row(
            f"{OPS}.RandCropImage.interpolation, {EVAL_OPS}.ResizeImage.interpolation",
            "data.interpolation={}",
            "bicubic",
        ),
        needless(
            f"{OPS}.RandCropImage.backend, {OPS}.RandCropImage.use_log_aspect",
            "one decoder; aspects are drawn evenly in their logarithm",
        ),
        Row(f"{OPS}.RandFlipImage.flip_code", "augment.flip=0.5", "1", "from left to right alone"),
        Row(f"{OPS}.NormalizeImage.mean, {EVAL_OPS}.NormalizeImage.mean", "data.mean={}", "[0.485,0.456,0.406]"),
        Row(f"{OPS}.NormalizeImage.std, {EVAL_OPS}.NormalizeImage.std", "data.std={}", "[0.229,0.224,0.225]"),
        needless(f"{OPS}.NormalizeImage.*, {EVAL_OPS}.NormalizeImage.*", "pixels are shares of 255"),
        Row(f"{OPS}.ColorJitter.brightness", "augment.brightness={}", "0.4"),
        Row(f"{OPS}.ColorJitter.contrast", "augment.contrast={}", "0.4"),
        Row(f"{OPS}.ColorJitter.saturation", "augment.saturation={}", "0.4"),
        Row(f"{OPS}.ColorJitter.hue", "augment.hue={}", "0.1"),
        lacking(f"{OPS}.AutoAugment", "augment.policy=randaugment or trivialaugment"),
        Row(
            f"{OPS}.RandAugment.num_layers, {OPS}.RandAugmentV2.num_layers, {OPS}.RandAugmentV3.num_layers",
            "augment.policy=randaugment augment.policy_ops={}",
            "2",
        ),
        Row(
            f"{OPS}.RandAugment.magnitude, {OPS}.RandAugmentV2.magnitude, {OPS}.RandAugmentV3.magnitude",
            "augment.policy=randaugment augment.policy_magnitude={}",
            "9",
            "of 30",
        ),
        Row(
            f"{OPS}.TimmAutoAugment.config_str",
            "augment.policy=randaugment",
            "rand-m9-mstd0.5-inc1",
            "without noise in its strength",
            rewrite=values.auto_augment,
        ),
        needless(f"{OPS}.TimmAutoAugment.*, {OPS}.RandAugmentV3.interpolation", "follow from the data's settings"),
        Row(f"{OPS}.RandomErasing.EPSILON", "augment.erase={}", "0.25"),
        lacking(f"{OPS}.RandomErasing.*", "area and aspect of what is erased are fixed"),
        Row(f"{MIX}.MixupOperator.alpha, {MIX}.OpSampler.MixupOperator.alpha", "augment.mixup={}", "0.2"),
        Row(f"{MIX}.CutmixOperator.alpha, {MIX}.OpSampler.CutmixOperator.alpha", "augment.cutmix={}", "1.0"),
        lacking(
            f"{MIX}.OpSampler.MixupOperator.prob, {MIX}.OpSampler.CutmixOperator.prob",
            "with both, each is taken every second time on average",
        ),
        Row(
            "DataLoader.Train.sampler.batch_size, DataLoader.Train.sampler.first_bs",
            "train.batch_size={}",
            "64",
            "of one worker",
        ),
        Row(
            "DataLoader.Train.sampler.drop_last",
            "data.drop_last=true",
            "True",
            values={"False": "data.drop_last=false"},
        ),
        needless("DataLoader.Train.sampler.name, DataLoader.Train.sampler.shuffle", "each epoch has a new order"),
        lacking(
            "DataLoader.Train.sampler.scales, DataLoader.Train.sampler.divided_factor, "
            "DataLoader.Train.sampler.is_training",
            "one size at a time: train.sizes=[[128, 30%], [160, 60%]] begins with smaller ones",
        ),
        Row("DataLoader.Train.loader.num_workers", "data.threads={}", "4", "threads, not processes"),
        needless("DataLoader.Train.loader.use_shared_memory, DataLoader.Eval.loader.*", "threads share memory anyway"),
        Row("DataLoader.Eval.sampler.batch_size", "eval.batch_size={}", "64"),
        needless("DataLoader.Eval.sampler.*", "every validation image is seen, once"),
        Row(
            f"{EVAL_OPS}.ResizeImage.resize_short",
            "data.crop_share=0.875",
            "256",
            "224 of so many pixels",
            rewrite=values.crop_share,
        ),
        Row(f"{EVAL_OPS}.ResizeImage.size", "data.crop_share=1.0", "384", "the image as a whole"),
        needless(f"{EVAL_OPS}.CropImage.size, {EVAL_OPS}.ResizeImage.backend", "data.image_size is for both"),
        Row("Metric.Train.TopkAcc.topk, Metric.Eval.TopkAcc.topk", "eval.top_k=5", "[1, 5]"),
        lacking(
            "Metric.*", "top-1, top-k and the loss are measured; mAP and F1 with data.multi_label; your own metrics"
        ),
        Row("Infer.infer_imgs", "phalanx predict RUN {}", "cat.jpg"),
        Row("Infer.PostProcess.topk", "phalanx predict RUN IMAGE --top-k {}", "5"),
        needless("Infer.*", "a run knows its classes, its sizes and its normalisation"),
    ),
)

LAUNCH = Group(
    "python -m paddle.distributed.launch, fleetrun",
    "launch",
    (
        Row("--gpus, --devices, --selected_gpus", "--gpus {}", "0,1,2,3", "one worker for each", behind=True),
        Row("--ips", "--ips {}", "10.0.0.1,10.0.0.2", "typed once, on one host"),
        Row("--nnodes", "--nodes {}", "2"),
        Row("--nproc_per_node", "-n {}", "8", "over all hosts: a host's times the hosts"),
        Row("--trainer_num, --worker_num, --np", "-n {}", "4"),
        Row("--server_num", "-s {}", "2"),
        Row("--servers", "-s 1 --servers-on a", "10.0.0.1:6170", rewrite=values.server_hosts),
        Row("--trainers, --workers", "-n 1 --ips a", "10.0.0.1:6171,10.0.0.2:6171", rewrite=values.worker_hosts),
        Row(
            "--run_mode",
            "--update-method collective",
            "collective",
            values={"ps": "--update-method pserver", "ps-heter": "--update-method pserver"},
            behind=True,
        ),
        Row("--log_dir", "--log-dir {}", "log", "a log for each process; without it in RUN/logs"),
        needless("--log_level, --log_overwrite, --enable_gpu_log", "RUN/logs is a new folder for each run"),
        Row("--max_restart", "--max-restarts {}", "3"),
        Row("--elastic_level", "--min-workers 1", "1", "how few workers may be left"),
        needless(
            "--elastic_timeout, --elastic_server, --job_id, --scale, --force", "the launcher itself sees who is lost"
        ),
        needless("--master, --rank, --host, --legacy, --sort_ip", "typed once; ranks follow the order of hosts"),
        Row("--start_port", "--port-range {}-6170", "6070"),
        needless("--gloo_port, --with_gloo, --http_port", "free ports are found"),
        lacking("--heter_workers, --heter_worker_num", "all workers are alike"),
        lacking("--xpus, --npus, --selected_xpus", "devices are PyTorch's: cpu, cuda, mps"),
        lacking("--auto_parallel_config, --auto_cluster_config, --auto_tuner_json", "models are not split"),
        needless("--ranks, --enable_rank_mapping", "ranks follow the order of hosts"),
    ),
)

VARIABLES = Group(
    "variables of paddle.distributed.launch",
    "variables",
    (
        needless(
            "PADDLE_MASTER, PADDLE_RANK, PADDLE_NNODES, PADDLE_JOB_ID, PADDLE_RUN_MODE, PADDLE_SORT_IP, "
            "PADDLE_LOG_LEVEL, PADDLE_LOG_DIR, PADDLE_LOG_OVERWRITE, PADDLE_IPS, PADDLE_DEVICES, "
            "PADDLE_NPROC_PER_NODE, "
            "PADDLE_START_PORT, PADDLE_GLOO_PORT, PADDLE_WITH_GLOO, PADDLE_SERVER_NUM, PADDLE_TRAINER_NUM, "
            "PADDLE_SERVERS_ENDPOINTS, PADDLE_TRAINERS_ENDPOINTS, PADDLE_MAX_RESTART, PADDLE_ELASTIC_LEVEL, "
            "PADDLE_ELASTIC_TIMEOUT, PADDLE_AUTO_PARALLEL_CONFIG, PADDLE_AUTO_CLUSTER",
            "they are the launcher's own flags; what it tells its processes (PADDLE_TRAINER_ID and so on, see Paddle) "
            "is "
            "understood",
        ),
        Row("FLAGS_START_PORT", "phalanx launch --port-range {}-6170", "6070"),
    ),
)

SYSTEM = System(
    "PaddleClas",
    "PaddleClas: train.py and paddle.distributed.launch",
    "Its YAML files are not read; each of their keys has a setting here, and a recipe of ours is such a file "
    "(`phalanx recipes NAME` shows one whole). What paddle.distributed.launch tells its processes is understood, as "
    "listed for Paddle.",
    (TRAIN, KEYS, LAUNCH, VARIABLES),
    (
        Example(
            "python -m paddle.distributed.launch --gpus 0,1,2,3 tools/train.py -c ppcls/configs/ImageNet/PPLCNet/"
            "PPLCNet_x1_0.yaml -o Global.epochs=360 -o DataLoader.Train.sampler.batch_size=512",
            "phalanx train images --model PPLCNet_x1_0 --data dataset/ILSVRC2012 --gpus 0,1,2,3 --epochs 360 "
            "--batch-size 512",
        ),
        Example(
            "python -m paddle.distributed.launch --ips 10.0.0.1,10.0.0.2 --gpus 0,1 tools/train.py -c ResNet50.yaml",
            "phalanx launch -n 4 --ips 10.0.0.1,10.0.0.2 -- train imagenet-resnet50 --data dataset/ILSVRC2012",
        ),
        Example(
            "python tools/train.py -c PPLCNet_x0_25.yaml -o Global.epochs=2 -o Optimizer.lr.name=Cosine "
            "-o Loss.Train.CELoss.epsilon=0.1 -o Global.device=cpu",
            "phalanx train digits --model PPLCNet_x0_25 --epochs 2 --lr-schedule cosine --label-smoothing 0.1 "
            "--device cpu",
            on_digits=True,
        ),
    ),
)
