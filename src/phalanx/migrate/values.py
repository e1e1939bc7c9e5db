"""How values of older systems are written here: each function makes all that is to be written of one value."""


def numbers(text: str) -> list[float]:
    """`1,2,3`, `[1, 2, 3]`, `(1, 2, 3)` or `1 2 3`."""
    return [float(part) for part in text.strip("[](){} '\"").replace(",", " ").split()]


def short(value: float) -> str:
    return f"{value:.4g}"


def listed(values: list[float]) -> str:
    return "[" + ",".join(map(short, values)) + "]"


def image_shape(text: str) -> str:
    channels, height = numbers(text)[:2]
    return f"data.image_size={height:.0f} data.channels={channels:.0f}"


def mean_of_bytes(text: str) -> str:
    return f"data.mean={listed([value / 255 for value in numbers(text)])}"


def std_of_bytes(text: str) -> str:
    return f"data.std={listed([value / 255 for value in numbers(text)])}"


def hue(text: str) -> str:
    """OpenCV's hue goes once round in 180; ours in 1."""
    return f"augment.hue={short(min(0.5, float(text) / 180))}"


def aspect_ratio(text: str) -> str:
    """The largest ratio, or where it is below 1 how far from 1 ratios go."""
    most = float(text)
    return f"augment.ratio={listed([1 - most, 1 + most] if most < 1 else [1 / most, most])}"


def steps(text: str) -> str:
    """`30,60` are epochs; `pow2` is polynomial decay of that power."""
    if text.startswith("pow"):
        return f"--lr-schedule polynomial schedule.power={short(float(text[3:].strip('- ')))}"
    return "--lr-step-epochs " + ",".join(map(short, numbers(text)))


def milestones(text: str) -> str:
    return "schedule.milestones=[" + ",".join(f"{short(place)}ep" for place in numbers(text)) + "]"


def factor(text: str) -> str:
    """From the rates of each part to what one is multiplied by to get the next."""
    first, second = numbers(text)[:2]
    return f"schedule.factor={short(second / first)}"


def crop_share(text: str) -> str:
    """The centre crop of 224 pixels keeps this share of a shorter side of so many."""
    return f"data.crop_share={short(224 / float(text))}"


def megabytes(text: str) -> str:
    unit = {"g": 1024, "m": 1}[text[-1].lower()]
    return f"--memory-per-worker {float(text[:-1]) * unit:.0f}"


def first_gpus(text: str) -> str:
    """A number of GPUs as the list of the first ones."""
    count = int(text)
    return "--gpus " + ",".join(map(str, range(count))) if count else "--device cpu"


def hosts_alone(text: str) -> list[str]:
    return list(dict.fromkeys(address.rpartition(":")[0] or address for address in text.split(",")))


def worker_hosts(text: str) -> str:
    return f"-n {len(text.split(','))} --ips {','.join(hosts_alone(text))}"


def server_hosts(text: str) -> str:
    return f"-s {len(text.split(','))} --servers-on {','.join(hosts_alone(text))}"


def auto_augment(text: str) -> str:
    """timm's description of a policy: rand-m9-mstd0.5-inc1."""
    magnitude = next(part[1:] for part in text.split("-") if part[:1] == "m" and part[1:].isdecimal())
    return f"augment.policy=randaugment augment.policy_magnitude={magnitude}"
