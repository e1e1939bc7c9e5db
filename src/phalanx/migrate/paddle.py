"""Paddle's dist_train.py (fluid image classification): local, parameter server, NCCL2."""

from phalanx.migrate import values
from phalanx.migrate.table import Example, Group, Row, System, lacking, needless, understood

METHODS = {
    "local": "--update-method local",
    "pserver": "--update-method pserver",
    "nccl2": "--update-method collective",
}
LAYOUTS = {"NCHW": "machine.channels_last=false", "NHWC": "machine.channels_last=true"}

TRAIN = Group(
    "dist_train.py and train.py",
    "train",
    (
        Row("--model", "--model {}", "ResNet50", "Paddle's names of what is also here work as they are"),
        Row("--data_dir", "--data {}", "data/ILSVRC2012", "lists and class folders are recognised"),
        Row(
            "--batch_size",
            "--batch-size {}",
            "32",
            "ours is of one worker, and a worker has one GPU: divide what was shared by several, or give "
            "--global-batch-size",
        ),
        Row("--test_batch_size", "eval.batch_size={}", "64"),
        Row("--multi_batch_repeat", "optim.accumulate={}", "4"),
        Row("--lr, --learning_rate", "--lr {}", "0.1"),
        Row("--num_epochs, --pass_num", "--epochs {}", "120"),
        Row(
            "--lr_strategy",
            "--lr-schedule {}",
            "piecewise_decay",
            values={
                "piecewise_decay": "--lr-step-epochs 30,60,90",
                "cosine_decay": "--lr-schedule cosine",
                "cosine_decay_warmup": "--lr-schedule cosine --warmup-epochs 5",
                "cosine_warmup_decay": "--lr-schedule cosine --warmup-epochs 5",
                "linear_decay": "--lr-schedule polynomial schedule.power=1",
                "exponential_decay": "--lr-schedule step schedule.every=2.4ep --lr-factor 0.97",
                "exponential_decay_warmup": "--lr-schedule step schedule.every=2.4ep --lr-factor 0.97 "
                "--warmup-epochs 5",
            },
        ),
        Row("--step_epochs", "--lr-step-epochs {}", "30 60 90", rewrite=values.steps),
        Row("--warm_up_epochs", "--warmup-epochs {}", "5"),
        Row("--decay_epochs", "schedule.every={}ep", "2.4"),
        Row("--decay_rate", "--lr-factor {}", "0.97"),
        Row("--l2_decay", "--weight-decay {}", "0.0001"),
        Row("--momentum_rate", "--momentum {}", "0.9", "plain momentum also needs optim.nesterov=false"),
        Row("--update_method", "--update-method {}", "nccl2", values=METHODS),
        Row(
            "--async_mode",
            "--update-method pserver --mode async",
            "True",
            values={"False": "--update-method pserver --mode sync"},
        ),
        needless("--split_var, --no_split_var", "parameters are always cut into even slices over the servers"),
        needless("--reduce_strategy", "gradients are all-reduced; each worker or server updates its own"),
        Row(
            "--enable_dgc", "--compress topk:0.001", "True", "with error feedback", values={"False": "--compress none"}
        ),
        lacking("--rampup_begin_step", "compression starts with the first step"),
        Row(
            "--device",
            "--device {}",
            "CPU",
            values={"CPU": "--device cpu", "GPU": "--device cuda"},
        ),
        Row("--use_gpu", "--device cuda", "False", values={"False": "--device cpu", "0": "--device cpu"}),
        Row(
            "--gpus",
            "--gpus {}",
            "4",
            "a number there, a list here: --gpus 4 would be the fifth GPU alone",
            rewrite=values.first_gpus,
        ),
        Row("--cpus, --num_threads", "machine.threads={}", "8"),
        Row("--data_format", "machine.channels_last=true", "NHWC", values=LAYOUTS),
        Row("--fp16, --use_fp16", "--precision fp16", "True", values={"False": "--precision fp32"}),
        needless("--scale_loss, --use_dynamic_loss_scaling", "with fp16 the loss scale follows the gradients"),
        needless("--reduce_master_grad", "gradients are float32"),
        Row("--image_shape", "data.image_size={} data.channels=3", "3,224,224", rewrite=values.image_shape),
        needless("--class_dim, --total_images", "classes and images are counted in the data"),
        Row("--lower_scale", "augment.scale=[{},1.0]", "0.08"),
        Row("--lower_ratio", "augment.ratio=[{},1.333]", "0.75"),
        Row("--upper_ratio", "augment.ratio=[0.75,{}]", "1.3333"),
        Row("--resize_short_size", "data.crop_share=0.875", "256", "224 of so many pixels", rewrite=values.crop_share),
        Row("--interpolation", "data.interpolation=bilinear", "1", values={"2": "data.interpolation=bicubic"}),
        Row("--image_mean", "data.mean=[{}]", "0.485,0.456,0.406"),
        Row("--image_std", "data.std=[{}]", "0.229,0.224,0.225"),
        Row("--use_mixup", "augment.mixup=0.2", "True", values={"False": "augment.mixup=0"}),
        Row("--mixup_alpha", "augment.mixup={}", "0.2"),
        Row("--use_aa", "augment.policy=randaugment", "True", "another policy: AutoAugment's is not here"),
        Row("--use_label_smoothing", "--label-smoothing 0.1", "True", values={"False": "--label-smoothing 0"}),
        Row("--label_smoothing_epsilon", "--label-smoothing {}", "0.1"),
        Row("--use_ema", "optim.ema=0.9999", "True"),
        Row("--ema_decay", "optim.ema={}", "0.9999"),
        Row("--drop_connect_rate", "model.drop_path={}", "0.2"),
        Row("--reader_thread", "data.threads={}", "8"),
        Row("--reader_buf_size", "data.prefetch={}", "8", "batches, not images"),
        needless("--use_dali", "JPEGs are decoded by native code, on the CPU"),
        Row("--model_save_dir", "--out {}", "output", "one run's folder: checkpoints, events, summary"),
        Row("--pretrained_model", "--init-from {}", "weights.safetensors", "Paddle's own files are not read"),
        lacking("--finetune_exclude_pretrained_params", "only the classifier can start anew: model.new_head=true"),
        Row(
            "--checkpoint",
            "--resume {}",
            "runs/mine",
            "a run's newest checkpoint; RUN/checkpoints/step-N is a chosen one",
        ),
        Row("--save_step", "checkpoint.every={}ep", "1"),
        Row("--print_step", "--log-every {}", "10"),
        Row("--random_seed", "--seed {}", "1"),
        Row("--max_iter", "train.length={}st", "1000"),
        Row("--no_test", "eval.every=100%", note="evaluated at the end alone"),
        Row("--validate", "eval.every=1ep", "True", values={"False": "eval.every=100%"}),
        lacking("--start_test_pass", "evaluation starts with the first epoch; eval.every=5ep makes it rarer"),
        needless("--memory_optimize, --with_mem_opt", "PyTorch frees what is no longer used"),
        needless(
            "--fuse_elewise_add_act_ops, --fuse_bn_act_ops", "on a CPU norms, additions and activations are fused"
        ),
        needless("--skip_unbalanced_data", "uneven last batches are weighted by their samples"),
        Row("--enable_sequential_execution", "machine.deterministic=true", "True"),
        lacking("--is_profiler, --profiler_path", "events.jsonl holds what each part of a step takes"),
        lacking("--same_feed", "--data synthetic needs no images at all"),
        needless("--enable_ce, --model_category", "they were for Paddle's own tests"),
        lacking("--padding_type, --use_se", "the model's name decides it"),
    ),
)

VARIABLES = Group(
    "PADDLE_* and their like, for job scripts that start each process themselves",
    "variables",
    (
        understood("PADDLE_TRAINING_ROLE, TRAINING_ROLE", "TRAINER or PSERVER"),
        understood("PADDLE_TRAINER_ID"),
        understood("PADDLE_TRAINERS_NUM, PADDLE_TRAINERS"),
        understood("PADDLE_TRAINER_ENDPOINTS, PADDLE_TRAINER_IPS"),
        understood("PADDLE_CURRENT_ENDPOINT, PADDLE_CURRENT_IP, POD_IP"),
        understood(
            "PADDLE_PSERVER_ENDPOINTS, PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_PSERVER_IPS, PADDLE_PSERVERS",
            "the four ways in which Paddle's versions list parameter servers",
        ),
        understood("PADDLE_PSERVER_PORT, PADDLE_PORT"),
        understood("PADDLE_IS_LOCAL"),
        Row("FLAGS_selected_gpus", "--gpus {}", "0", "one worker for each GPU of the list"),
        Row("CPU_NUM", "machine.threads={}", "8"),
        needless("CUDA_VISIBLE_DEVICES, NCCL_P2P_DISABLE, NCCL_IB_DISABLE", "CUDA and NCCL read it here as well"),
        Row("FLAGS_cudnn_deterministic", "machine.deterministic=true", "True"),
        needless(
            "FLAGS_use_ngraph, FLAGS_fraction_of_gpu_memory_to_use, FLAGS_eager_delete_tensor_gb, "
            "FLAGS_sync_nccl_allreduce",
            "they steer Paddle's own engine",
        ),
    ),
)

SYSTEM = System(
    "Paddle",
    "Paddle: dist_train.py",
    "A job script that exports PADDLE_* for each process needs one change: `phalanx train …` in place of "
    "`python dist_train.py …`. Without such a script, `phalanx launch` starts all of them.",
    (TRAIN, VARIABLES),
    (
        Example(
            "python dist_train.py --model ResNet50 --data_dir data/ILSVRC2012 --batch_size 256 --lr 0.1 --num_epochs "
            "120",
            "phalanx train --model ResNet50 --data data/ILSVRC2012 --batch-size 256 --lr 0.1 --epochs 120 "
            "--lr-step-epochs 30,60,90",
        ),
        Example(
            "PADDLE_TRAINING_ROLE=PSERVER PADDLE_PSERVER_ENDPOINTS=10.0.0.1:7160,10.0.0.2:7160 … "
            "python dist_train.py --update_method pserver --async_mode True",
            "phalanx launch -n 4 -s 2 --ips 10.0.0.1,10.0.0.2 -- train imagenet-resnet50 --data data/ILSVRC2012 "
            "--mode async",
            "servers and trainers, on both hosts",
        ),
        Example(
            "PADDLE_TRAINER_ID=0 PADDLE_TRAINERS_NUM=2 … python dist_train.py --update_method nccl2 --batch_size 32",
            "phalanx train digits --update-method collective --workers 2 --batch-size 32 --epochs 1",
            on_digits=True,
        ),
    ),
)
