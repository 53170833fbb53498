"""Small training and inference loops as people write them, by what is special about each.

Each runs on the CPU within milliseconds, after `SETUP` unless it has its own.
"""

SETUP = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = "cpu"
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = [(torch.randn(3, 4), torch.randint(2, (3,))) for _ in range(6)]

"""

LOOPS: dict[str, str] = {}

# ------------------------------------------------------------------------------ plain training

LOOPS["plain"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["rows_that_numpy_selects"] = """\
import numpy as np
data, labels = torch.randn(12, 4), torch.randint(2, (12,))
order = np.arange(12)
for epoch in range(2):
    np.random.RandomState(epoch).shuffle(order)
    for start in range(0, 12, 4):
        rows = order[start : start + 4]
        optimizer.zero_grad()
        loss = criterion(model(data[rows]), labels.long()[rows])
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}", len(rows))
"""

LOOPS["advantages_that_are_normalized_behind_the_forward"] = """\
import numpy as np
obs, taken, gained = torch.randn(12, 4), torch.randint(2, (12,)), torch.randn(12)
order = np.arange(12)


def train():
    for epoch in range(2):
        np.random.RandomState(epoch).shuffle(order)
        for start in range(0, 12, 4):
            rows = order[start : start + 4]
            log_p = model(obs[rows]).log_softmax(1).gather(1, taken[rows][:, None])[:, 0]
            gain = gained[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -(log_p * gain.clamp(-2, 2)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{loss.item():.5f}", len(rows))


train()
"""

LOOPS["rows_that_are_selected_behind_a_list_that_grows"] = """\
obs, taken, gained = torch.randn(12, 4), torch.randint(2, (12,)), torch.randn(12)
likely, normalize = [], True


def train():
    for epoch in range(2):
        order = torch.randperm(12)
        for start in range(0, 12, 4):
            rows = order[start : start + 4]
            log_p = model(obs[rows]).log_softmax(1).gather(1, taken[rows][:, None])[:, 0]
            likely.append(log_p.exp().mean().item())
            gain = gained[rows]
            if normalize:
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -(log_p * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


train()
print(f"{sum(likely) / len(likely):.5f}")
"""

LOOPS["distributions_that_check_values"] = """\
from torch.distributions.categorical import Categorical
import math


def surprise(x, y):
    return -Categorical(logits=model(x)).log_prob(y).mean() / math.log(2)


for x, y in loader:
    optimizer.zero_grad()
    loss = surprise(x, y)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["distributions_without_a_name_for_torch"] = """\
from torch import distributions as dist
from torch.nn.functional import relu


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)

    def forward(self, x):
        return dist.Normal(relu(self.mean(x)), 1.0)


policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = -policy(x).log_prob(torch.ones(3, 2)).mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["distributions_whose_checks_are_chosen"] = """\
from torch.distributions import Normal


def surprise(x):
    return -Normal(model(x), 1.0, validate_args=False).log_prob(torch.ones(3, 2)).mean()


for x, y in loader:
    optimizer.zero_grad()
    loss = surprise(x)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["micro_steps_with_prefetch"] = """\
data = torch.randn(64, 4)
accumulation, clip, distributed = 3, 1.0, False


def get_batch():
    at = torch.randint(60, (3,))
    x = data[at]
    y = (x.sum(1) > 0).long()
    return x.to(device), y.to(device)


x, y = get_batch()
for step in range(6):
    # Several batches for each update.
    for micro_step in range(accumulation):
        if distributed:
            # only the last one is reduced
            model.require_backward_grad_sync = micro_step == accumulation - 1
        out = model(x)
        loss = criterion(out, y) / accumulation
        # the next batch, while the GPU is busy
        x, y = get_batch()
        loss.backward()
    # Clip.
    if clip != 0.0:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        print(step, f"{loss.item():.5f}", x.sum())
"""

LOOPS["micro_steps_that_fetch_first"] = """\
batches = iter(loader * 4)
for step in range(4):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(2):
        x, y = next(batches)
        x = x.to(device)
        loss = criterion(model(x), y)
        total = total + loss.detach()
        loss.backward()
    optimizer.step()
    print(f"{total.item():.5f}", len(x))
"""

LOOPS["micro_steps_of_which_one_number_is_read"] = """\
scale = [0.5, 0.25, 0.25]
source = iter(loader * 4)
for step in range(4):
    for i in range(3):
        batch = next(source)
        loss = criterion(model(batch[0]), batch[1]) * scale[i]
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(i, f"{loss.item():.5f}")
"""

LOOPS["micro_steps_that_may_end_early"] = """\
source = iter(loader * 4)
for step in range(4):
    for i in range(3):
        x, y = next(source)
        loss = criterion(model(x), y)
        loss.backward()
        if step == 2:
            break
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.5f}")
"""

LOOPS["micro_steps_whose_batch_is_read_behind"] = """\
source = iter(loader * 4)
x, y = next(source)
for step in range(4):
    for i in range(3):
        loss = criterion(model(x), y)
        x, y = next(source)
        loss.backward()
    (model(x).mean() * 0.1).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.5f}")
"""

LOOPS["micro_steps_that_fetch_by_the_loss"] = """\
source = {True: loader[0], False: loader[1]}
for step in range(4):
    x, y = loader[2]
    for i in range(3):
        loss = criterion(model(x), y)
        loss.backward()
        x, y = source[bool(loss > 0.7)]
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.5f}")
"""

LOOPS["epochs"] = """\
for epoch in range(3):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.5f}")
"""

LOOPS["nothing_read_afterwards"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["main_function"] = """\
def main():
    count = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        count += len(x)
    print(count, f"{loss:.5f}")


if __name__ == "__main__":
    main()
"""

LOOPS["comments_and_blank_lines"] = """\
for x, y in loader:  # one pass

    # Clear what the last step left.
    optimizer.zero_grad()  # to None

    # Forward.
    out = model(x)
    loss = criterion(out, y)  # the mean

    loss.backward()

    # Update.
    optimizer.step()

    # Show.
    print(f"{loss.item():.5f}")
    # The end.
"""

LOOPS["several_on_a_line"] = """\
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for x, y in loader:
    loss = criterion(model(x), y); loss.backward()
    optimizer.step(); scheduler.step(); optimizer.zero_grad()
    print(scheduler.get_last_lr())
"""

LOOPS["a_helper_on_a_line_with_others"] = """\
def learn(loss):
    loss.backward()


for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad(); learn(loss); optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["body_on_the_line_of_the_loop"] = """\
for x, y in loader: optimizer.zero_grad(); criterion(model(x), y).backward(); optimizer.step()
print(sum(p.sum() for p in model.parameters()).item())
"""

LOOPS["a_step_over_several_lines"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(
        model(
            x  # the batch
        ),
        y,
    )
    loss.backward(
    )
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["existing_name_train_step"] = """\
train_step = 0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    train_step += 1
print(train_step)
"""

# --------------------------------------------------------------------------- batches and copies

LOOPS["copies_inside"] = """\
for x, y in loader:
    optimizer.zero_grad()
    x, y = x.to(device), y.to(device)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["copies_in_expressions"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x.to(device)), y.to(device, non_blocking=True))
    loss.backward()
    optimizer.step()
"""

LOOPS["copies_in_a_with"] = """\
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16):
        x = x.to(device)
        y = y.to(device)
        loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.3f}")
"""

LOOPS["a_dictionary_as_batch"] = """\
batches = [{"ids": x, "labels": y} for x, y in loader]
for batch in batches:
    optimizer.zero_grad()
    logits = model(batch["ids"].to(device))
    loss = criterion(logits, batch["labels"].to(device))
    loss.backward()
    optimizer.step()
"""

LOOPS["batches_by_a_counter"] = """\
images = torch.randn(4, 3, 4)
labels = torch.randint(2, (4, 3))
for step in range(8):
    loss = criterion(model(images[step % 4]), labels[step % 4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["slices_by_a_counter"] = """\
data = torch.randn(40, 4)
targets = torch.randint(2, (40,))
size = 5
for i in range(0, 40, size):
    optimizer.zero_grad()
    loss = criterion(model(data[i : i + size]), targets[i : i + size])
    loss.backward()
    optimizer.step()
"""

LOOPS["next_batch_between_forward_and_backward"] = """\
def get_batch():
    index = torch.randint(6, (1,)).item()
    return loader[index]


x, y = get_batch()
for _ in range(8):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    x, y = get_batch()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["next_of_an_iterator"] = """\
batches = iter(loader)
for _ in range(len(loader)):
    optimizer.zero_grad()
    x, y = next(batches)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["random_numbers_between_two_forwards"] = """\
dropout = nn.Dropout(0.5)
for x, y in loader:
    optimizer.zero_grad()
    first = criterion(dropout(model(x)), y)
    noise = torch.randn(3, 4)
    second = criterion(model(x + noise), y)
    (first + second).backward()
    optimizer.step()
"""

LOOPS["sizes_inside"] = """\
for x, y in loader:
    optimizer.zero_grad()
    size = x.size(0)
    loss = F.cross_entropy(model(x), y, reduction="sum") / size
    loss.backward()
    optimizer.step()
    print(size)
"""

LOOPS["a_whole_data_set"] = """\
x, y = loader[0]
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch}: {loss.item():.5f}")
"""

# -------------------------------------------------------------------------------------- logging

LOOPS["item_before_the_step"] = """\
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    total += loss.item()
    optimizer.step()
print(f"{total:.5f}")
"""

LOOPS["print_before_the_step"] = """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    if i % 2 == 0:
        print(i, f"{loss.item():.5f}", out.shape)
    optimizer.step()
"""

LOOPS["an_f_string_that_shows_its_code"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(f"{loss.item()=}")
    loss = loss / 2
    loss.backward()
    optimizer.step()
"""

LOOPS["a_fetch_that_prints"] = """\
def get(i):
    print("get", i)
    return loader[i]


for i in range(6):
    optimizer.zero_grad()
    print("step", i)
    x, y = get(i)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["random_numbers_of_python_in_order"] = """\
import random

random.seed(0)
for x, y in loader:
    optimizer.zero_grad()
    print(random.randint(0, 99))
    k = random.randint(0, 3)
    loss = criterion(model(x.roll(k, 1)), y)
    loss.backward()
    optimizer.step()
    print(k, f"{loss.item():.5f}")
"""

LOOPS["inputs_changed_by_their_gradients"] = """\
for x, y in loader:
    delta = torch.zeros_like(x, requires_grad=True)
    loss = criterion(model(x + delta), y)
    loss.backward()
    changed = (x + 0.1 * delta.grad.sign()).detach()
    optimizer.zero_grad()
    loss = criterion(model(changed), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["losses_in_a_list"] = """\
losses = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.append(loss)
    loss.backward()
    optimizer.step()
print(torch.stack(losses).mean().item())
"""

LOOPS["meters"] = """\
class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, count=1):
        self.sum += value * count
        self.count += count


meter = Meter()
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    meter.update(loss.item(), x.size(0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{meter.sum / meter.count:.5f}")
"""

LOOPS["accuracy_inside"] = """\
correct = 0
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    _, predicted = out.max(1)
    correct += predicted.eq(y).sum().item()
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
print(correct)
"""

LOOPS["a_read_of_a_name_that_is_bound_again"] = """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    first = criterion(out, y)
    first.backward()
    before = out.mean().item()
    out = model(-x)
    second = criterion(out, y)
    second.backward()
    after = out.mean().item()
    optimizer.step()
    print(f"{before:.5f} {after:.5f}")
"""

LOOPS["the_norm_of_the_gradients"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{norm.item():.5f}")
"""

LOOPS["the_norm_as_a_number"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    optimizer.step()
    print(f"{norm:.5f}")
"""

LOOPS["time_inside"] = """\
import time

spent = 0.0
for x, y in loader:
    optimizer.zero_grad()
    begin = time.time()
    loss = criterion(model(x), y)
    loss.backward()
    spent += time.time() - begin
    optimizer.step()
assert spent > 0
"""

LOOPS["a_counter_inside"] = """\
count = 0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    count += 1
    loss.backward()
    optimizer.step()
print(count)
"""

LOOPS["a_loss_scaled_after_it_was_read"] = """\
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    total += loss.item()
    loss = loss / 2
    loss.backward()
    optimizer.step()
print(f"{total:.5f}")
"""

LOOPS["a_loss_scaled_in_place_after_it_was_read"] = """\
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    total += loss.item()
    loss /= 2
    loss.backward()
    optimizer.step()
print(f"{total:.5f}")
"""

LOOPS["gradients_are_logged"] = """\
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    print(f"{model[0].weight.grad.norm().item():.5f}")
    optimizer.step()
    optimizer.zero_grad()
"""

LOOPS["a_branch_on_the_loss"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    if loss.item() > 0.1:
        loss.backward()
        optimizer.step()
"""

LOOPS["an_early_end_on_the_loss"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    if torch.isnan(loss):
        break
    loss.backward()
    optimizer.step()
"""

LOOPS["an_end_behind_the_step"] = """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if loss.item() < 0.01 or i == 4:
        break
print(i)
"""

# -------------------------------------------------------------------- learning rates, optimizers

LOOPS["rates_that_change_after_one_is_shown"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    print(optimizer.param_groups[0]["lr"])
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    optimizer.step()
"""

LOOPS["rates_that_change_after_a_function_reads_one"] = """\
def rate_of(optimizer):
    return optimizer.param_groups[0]["lr"]


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    rate = rate_of(optimizer)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    optimizer.step()
    print(rate)
"""

LOOPS["gradients_that_a_function_reads_before_they_are_cleared"] = """\
def norm_of(model):
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return sum(norms)


for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(norm_of(model))
    optimizer.zero_grad()
"""

LOOPS["a_log_that_has_the_model"] = """\
class Log:
    def __init__(self, model):
        self.model = model

    def log(self):
        print([p.grad.norm().item() for p in self.model.parameters() if p.grad is not None])


log = Log(model)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    log.log()
    optimizer.zero_grad()
"""

LOOPS["a_layer_with_a_name_of_its_own"] = """\
layer = model[0]
weights = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    weights.append(layer.weight.detach().clone())
    optimizer.step()
print(weights)
"""

LOOPS["parameters_that_the_optimizer_is_given"] = """\
image = torch.rand(1, 4, requires_grad=True)
optimizer = torch.optim.Adam([image], lr=0.05)
frames = []
for _ in range(6):
    optimizer.zero_grad()
    loss = (model(image) - 0.3).pow(2).sum()
    loss.backward()
    frames.append(image.detach().clone())
    optimizer.step()
print(frames)
"""

LOOPS["parameters_in_groups"] = """\
scale, shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
groups = [{"params": [scale], "lr": 0.1}, {"params": model.parameters()}]
optimizer = torch.optim.SGD(groups, lr=0.1)
optimizer.add_param_group({"params": [shift]})
scales = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x) * scale + shift, y)
    loss.backward()
    scales.append((scale.detach().clone(), shift.tolist()))
    optimizer.step()
print(scales)
"""

LOOPS["layers_collected_by_a_loop"] = """\
table = {}
for name, parameter in model.named_parameters():
    table[name] = parameter
biases = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    biases.append(table["2.bias"].tolist())
    optimizer.step()
print(biases)
"""

LOOPS["a_tracker_that_gets_the_model_later"] = """\
class Tracker:
    def __init__(self):
        self.rows = []

    def attach(self, model):
        self.model = model

    def log(self, loss):
        self.rows.append((loss, self.model[0].weight.norm().tolist()))


tracker = Tracker()
tracker.attach(model)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    tracker.log(loss.item())
    optimizer.step()
print(tracker.rows)
"""

LOOPS["parts_that_a_function_gives_back"] = """\
def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def size_of(parameters):
    return float(sum(p.detach().pow(2).sum() for p in parameters))


parameters = trainable(model)
sizes = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    size = size_of(parameters)
    optimizer.step()
    sizes.append((loss.item(), size))
print(sizes)
"""

LOOPS["a_head_that_a_trainer_is_given"] = """\
class Trainer:
    def __init__(self, model, head, optimizer):
        self.model, self.head, self.optimizer = model, head, optimizer
        self.biases = []

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.biases.append(self.head.bias.tolist())
            self.optimizer.step()


trainer = Trainer(model, model[2], optimizer)
trainer.fit(loader)
print(trainer.biases)
"""

LOOPS["a_norm_beside_a_weight"] = """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rows.append((float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)), model[2].bias.tolist()))
    optimizer.step()
print(rows)
"""

LOOPS["a_value_for_each_parameter"] = """\
parameters = list(model.parameters())
rows = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    rows.append([p.norm().tolist() for p in parameters])
    optimizer.step()
print(rows)
"""

LOOPS["features_changed_in_place"] = """\
body, head = nn.Linear(4, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
rows = []
for x, y in loader:
    optimizer.zero_grad()
    features = body(x)
    copied = features.detach().clone()
    rows.append(copied.max().tolist())
    copied = copied.clamp_(-0.1, 0.1)
    loss = criterion(head(F.relu(features, inplace=True)), y) + 0 * copied.sum()
    loss.backward()
    optimizer.step()
print(rows)
"""

LOOPS["features_that_a_layer_changes"] = """\
body, head = nn.Linear(4, 8), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 2))
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
kept = []
for x, y in loader:
    optimizer.zero_grad()
    features = body(x)
    kept.append(features.detach().clone())
    loss = criterion(head(features), y)
    loss.backward()
    optimizer.step()
print(kept)
"""

LOOPS["a_helper_that_writes"] = """\
def fill(target, y):
    target[torch.arange(3), y] = 1.0
    return target


def add_up(total, out):
    total += out.detach().sum(0)


total, rows = torch.zeros(2), []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    target = out.detach().clone()
    rows.append((target.tolist(), total.tolist()))
    add_up(total, out)
    loss = F.mse_loss(out, fill(target, y))
    loss.backward()
    optimizer.step()
print(rows, total)
"""

LOOPS["a_layer_that_is_read_before_the_forward"] = """\
norm = nn.BatchNorm1d(8)
model = nn.Sequential(nn.Linear(4, 8), norm, nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    print(norm.running_mean)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["a_part_that_keeps_a_loss"] = """\
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.penalty = nn.Linear(4, 8), None

    def forward(self, x):
        self.penalty = self.linear.weight.square().mean()
        return self.linear(x)


class Whole(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


encoder = Encoder()
model = Whole(encoder)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    penalty = encoder.penalty
    loss = criterion(out, y) + 0.1 * penalty
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_count_without_gradients"] = """\
correct = torch.zeros(())
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    with torch.no_grad():
        correct += (out.argmax(1) == y).sum()
    loss.backward()
    optimizer.step()
print(correct)
"""

LOOPS["a_trainer_that_logs_gradients"] = """\
class Trainer:
    def __init__(self):
        self.model, self.opt = model, optimizer

    def log(self):
        print([p.grad.norm() for p in self.model.parameters() if p.grad is not None])

    def fit(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.log()
            self.opt.zero_grad()


Trainer().fit()
"""

LOOPS["a_trainer_with_a_layer_of_its_own"] = """\
class Trainer:
    def __init__(self):
        self.model, self.opt = model, optimizer
        self.layer, self.weights = self.model[0], []

    def fit(self):
        for x, y in loader:
            self.opt.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.weights.append(self.layer.weight.detach().clone())
            self.opt.step()
        print(self.weights)


Trainer().fit()
"""

LOOPS["scheduler_behind"] = """\
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
print(f"{loss.item():.5f}")
"""

LOOPS["scheduler_inside"] = """\
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"{loss.item():.5f} {schedule.get_last_lr()}")
"""

LOOPS["rate_set_by_hand"] = """\
for i, (x, y) in enumerate(loader):
    lr = 0.1 / (i + 1)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{lr:.3f} {loss.item():.5f}")
"""

LOOPS["rate_set_inside"] = """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (i + 1)
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["clipping"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    optimizer.step()
"""

LOOPS["clipping_if_asked"] = """\
clip = 0.5
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    if clip:
        nn.utils.clip_grad_value_(model.parameters(), clip)
    optimizer.step()
"""

LOOPS["a_scaler"] = """\
scaler = torch.amp.GradScaler(device, enabled=False)
for x, y in loader:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=True):
        out = model(x)
        loss = criterion(out, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"{loss.item():.3f}")
"""

LOOPS["all_under_autocast"] = """\
for x, y in loader:
    with torch.autocast(device, dtype=torch.bfloat16):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.3f}")
"""

LOOPS["clipped_and_updated_by_hand"] = """\
import torch
from torch import nn

model = nn.GRU(4, 8, batch_first=True)
inputs = torch.randn(60, 2, 5, 4)
lr = 0.1
hidden = None
total = 0.0
for i in range(60):
    model.zero_grad()
    hidden = hidden if hidden is None else hidden.detach()
    output, hidden = model(inputs[i], hidden)
    loss = output.square().mean()
    loss.backward()
    # the update is ours
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
    total += loss.item()
print(total)
"""

LOOPS["an_optimizer_by_hand"] = """\
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
print(f"{loss.item():.5f}")
"""

LOOPS["a_closure"] = """\
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
x, y = loader[0]
for _ in range(3):
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
"""

LOOPS["two_optimizers"] = """\
head = nn.Linear(2, 2)
second = torch.optim.Adam(head.parameters())
for x, y in loader:
    optimizer.zero_grad()
    second.zero_grad()
    loss = criterion(head(model(x)), y)
    loss.backward()
    optimizer.step()
    second.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["an_average_of_the_weights"] = """\
average = [p.detach().clone() for p in model.parameters()]


def update(average, model):
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.lerp_(p, 0.1)


for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    update(average, model)
    optimizer.zero_grad()
print(f"{average[0].sum().item():.5f}")
"""

LOOPS["weights_are_clamped"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for p in model.parameters():
        p.grad.data.clamp_(-0.1, 0.1)
    optimizer.step()
print(f"{loss.item():.5f}")
"""

# ---------------------------------------------------------------------------------------- fixes

LOOPS["a_sum_that_is_read_per_epoch"] = """\
for epoch in range(2):
    running = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(epoch, running / len(loader))
"""

LOOPS["a_sum_that_is_read_in_the_loop"] = """\
running = 0.0
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    running += loss.item()
    print(running / (i + 1))
"""

LOOPS["sums_of_two_losses_and_of_a_count"] = """\
rec = kl = correct = 0
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    ce = criterion(out, y)
    penalty = out.pow(2).mean()
    hits = (out.argmax(1) == y).sum()
    loss = (ce + 0.1 * penalty) / 2
    loss.backward()
    optimizer.step()
    rec += ce.item()
    kl += penalty.item()
    correct += hits.item()
print(f"{rec:.5f} {kl:.5f} {correct}/18")
"""

LOOPS["a_sum_that_stays_an_integer"] = """\
total = 0
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if i > 100:
        total += loss.item()
print(total)
"""

LOOPS["a_sum_that_others_read"] = """\
total = 0.0


def train():
    global total
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        report()


def report():
    print(total)


train()
"""

LOOPS["a_sum_that_is_read_after_an_exception"] = """\
total = 0.0
try:
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if i == 4:
            raise KeyboardInterrupt
except KeyboardInterrupt:
    print("stopped", total)
"""

LOOPS["an_enabled_scaler_and_adam"] = """\
optimizer = torch.optim.Adam(
    model.parameters(),
    lr=0.01,  # small
)
scaler = torch.amp.GradScaler(device, enabled=False)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

LOOPS["nadam"] = """\
optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["pageable_batches"] = """\
from torch.utils.data import DataLoader
batches = DataLoader([(x[0], y[0]) for x, y in loader], batch_size=2)
for x, y in batches:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

LOOPS["pageable_batches_that_are_kept"] = """\
from torch.utils.data import DataLoader
batches = DataLoader([(x[0], y[0]) for x, y in loader], batch_size=2)
kept = []
for x, y in batches:
    kept.append(x)
    x = x.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

# --------------------------------------------------------------------------------- accumulation

LOOPS["accumulation_by_a_counter"] = """\
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
print(f"{loss.item():.5f}")
"""

LOOPS["accumulation_in_a_loop"] = """\
batches = torch.randn(2, 3, 4), torch.randint(2, (2, 3))
for _ in range(4):
    optimizer.zero_grad()
    for x, y in zip(*batches):
        loss = criterion(model(x), y) / 2
        loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["accumulation_with_a_fetch_inside"] = """\
def get_batch():
    return loader[int(torch.randint(6, (1,)))]


x, y = get_batch()
for step in range(3):
    for micro in range(2):
        loss = criterion(model(x), y)
        loss = loss / 2
        x, y = get_batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, f"{loss.item():.5f}")
"""

# ------------------------------------------------------------------------------------- functions

LOOPS["a_function_per_step"] = """\
def train(model, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


for x, y in loader:
    print(f"{train(model, x, y):.5f}")
"""

LOOPS["a_function_per_epoch"] = """\
def train(model, loader, optimizer, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        if i % 3 == 0:
            print(epoch, i, f"{loss.item():.5f}")


for epoch in range(2):
    train(model, loader, optimizer, epoch)
"""

LOOPS["a_method_of_a_trainer"] = """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.steps = 0

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            self.last = loss.item()


trainer = Trainer(model, optimizer)
trainer.fit(loader)
print(trainer.steps, f"{trainer.last:.5f}")
"""

LOOPS["a_method_per_step"] = """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.steps = model, optimizer, 0

    def step(self, batch):
        x, y = batch
        self.optimizer.zero_grad()
        loss = criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.item()


trainer = Trainer(model, optimizer)
for batch in loader:
    print(f"{trainer.step(batch):.5f}")
print(trainer.steps)
"""

LOOPS["a_loss_kept_on_self"] = """\
class Trainer:
    def run(self, loader):
        for x, y in loader:
            optimizer.zero_grad()
            self.loss = criterion(model(x), y)
            self.loss.backward()
            optimizer.step()


Trainer().run(loader)
"""

LOOPS["a_helper_computes_the_loss"] = """\
def compute_loss(x, y):
    return criterion(model(x), y)


for x, y in loader:
    optimizer.zero_grad()
    loss = compute_loss(x, y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["forward_and_update_in_two_functions"] = """\
def forward(x, y):
    return criterion(model(x), y)


def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for x, y in loader:
    loss = forward(x, y)
    update(loss)
    print(f"{loss.item():.5f}")
"""

LOOPS["a_function_within_a_function"] = """\
def main():
    total = 0.0

    def one(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for x, y in loader:
        total += one(x, y).item()
    print(f"{total:.5f}")


main()
"""

LOOPS["a_step_without_a_loop"] = """\
x, y = loader[0]
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
"""

LOOPS["a_global_loss"] = """\
def show():
    print(f"{loss.item():.5f}")


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    show()
"""

LOOPS["a_generator"] = """\
def losses():
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        yield loss
        loss.backward()
        optimizer.step()


for loss in losses():
    print(f"{loss.item():.5f}")
"""

# ---------------------------------------------------------------------------------------- names

LOOPS["a_hidden_state"] = """\
rnn = nn.RNN(4, 4)
optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
hidden = torch.zeros(1, 3, 4)
for x, y in loader:
    optimizer.zero_grad()
    hidden = hidden.detach()
    out, hidden = rnn(x.unsqueeze(0), hidden)
    loss = out.pow(2).mean()
    loss.backward()
    optimizer.step()
print(f"{hidden.sum().item():.5f}")
"""

LOOPS["bound_in_a_branch"] = """\
weighted = True
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    if weighted:
        penalty = out.pow(2).mean()
        loss = loss + penalty
    loss.backward()
    optimizer.step()
print(f"{penalty.item():.5f}")
"""

LOOPS["bound_in_a_branch_and_before"] = """\
weighted = False
penalty = torch.zeros(())
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    if weighted:
        penalty = out.pow(2).mean()
        loss = loss + penalty
    loss.backward()
    optimizer.step()
print(f"{penalty.item():.5f}")
"""

LOOPS["read_in_a_branch_only"] = """\
mixed = False
for x, y in loader:
    if mixed:
        other = y.flip(0)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    if mixed:
        loss = loss + criterion(model(x), other)
    loss.backward()
    optimizer.step()
"""

LOOPS["a_deleted_name"] = """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    del out
    loss.backward()
    optimizer.step()
"""

LOOPS["names_deleted_behind_the_step"] = """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    last = loss.item()
    del out, loss
print(last)
"""

LOOPS["a_walrus"] = """\
for x, y in loader:
    optimizer.zero_grad()
    (loss := criterion(model(x), y)).backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["a_number_that_grows"] = """\
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y) * (1 + step / 10)
    loss.backward()
    optimizer.step()
"""

LOOPS["a_number_per_epoch"] = """\
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y) * (1 + epoch / 10)
        loss.backward()
        optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["made_in_each_fold"] = """\
for fold in range(2):
    net = nn.Linear(4, 2)
    adam = torch.optim.Adam(net.parameters())
    for x, y in loader:
        adam.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        adam.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["evaluation_in_between"] = """\
for epoch in range(2):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = 0
        for x, y in loader:
            out = model(x)
            correct += (out.argmax(1) == y).sum().item()
    print(epoch, correct)
"""

LOOPS["a_comprehension"] = """\
models = [model, nn.Linear(4, 2)]
for x, y in loader:
    optimizer.zero_grad()
    outs = [net(x) for net in models]
    loss = sum(criterion(out, y) for out in outs)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["a_name_of_the_runtime_is_taken"] = """\
graphed = False
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

# ----------------------------------------------------------------------------- several networks

LOOPS["a_gan"] = """\
generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
optimizer_g = torch.optim.Adam(generator.parameters())
optimizer_d = torch.optim.Adam(critic.parameters())
bce = nn.BCEWithLogitsLoss()
for i, (x, _) in enumerate(loader):
    # The critic.
    optimizer_d.zero_grad()
    size = x.size(0)
    real = torch.ones(size, 1, device=device)
    out = critic(x)
    loss_real = bce(out, real)
    loss_real.backward()
    seen = out.mean().item()
    noise = torch.randn(size, 2, device=device)
    fake = generator(noise)
    out = critic(fake.detach())
    loss_fake = bce(out, 1 - real)
    loss_fake.backward()
    loss_d = loss_real + loss_fake
    optimizer_d.step()
    # The generator.
    optimizer_g.zero_grad()
    loss_g = bce(critic(fake), real)
    loss_g.backward()
    optimizer_g.step()
    print(i, f"{loss_d.item():.5f} {loss_g.item():.5f} {seen:.5f}")
"""

LOOPS["a_generator_that_learns_seldom"] = """\
generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
optimizer_g = torch.optim.RMSprop(generator.parameters())
optimizer_d = torch.optim.RMSprop(critic.parameters())
for i, (x, _) in enumerate(loader):
    optimizer_d.zero_grad()
    noise = torch.randn(3, 2, device=device)
    fake = generator(noise).detach()
    loss_d = critic(fake).mean() - critic(x).mean()
    loss_d.backward()
    optimizer_d.step()
    if i % 3 == 0:
        optimizer_g.zero_grad()
        loss_g = -critic(generator(noise)).mean()
        loss_g.backward()
        optimizer_g.step()
        print(f"{loss_g.item():.5f}")
"""

LOOPS["a_detached_fake_and_prints_between"] = """\
second = nn.Linear(4, 2)
other = torch.optim.SGD(second.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"first {loss.item():.5f}")
    other.zero_grad()
    loss = criterion(second(x), y)
    loss.backward()
    other.step()
    print(f"second {loss.item():.5f}")
"""

# ------------------------------------------------------------------------------------ inference

LOOPS["inference"] = """\
model.eval()
with torch.no_grad():
    for x, _ in loader:
        out = model(x)
        print(f"{out.sum().item():.5f}")
"""

LOOPS["inference_with_a_read"] = """\
correct = 0
model.eval()
with torch.inference_mode():
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
print(correct)
"""

LOOPS["inference_into_a_list"] = """\
outputs = []
with torch.no_grad():
    for x, _ in loader:
        outputs.append(model(x).softmax(-1).cpu())
print(torch.cat(outputs).sum().item())
"""

LOOPS["inference_in_a_function"] = """\
@torch.no_grad()
def predict(x):
    x = x.to(device)
    return model(x)


for x, _ in loader:
    print(f"{predict(x).sum().item():.5f}")
"""

LOOPS["inference_while"] = """\
index = 0
with torch.no_grad():
    while index < len(loader):
        x = loader[index][0]
        scores = model(x)
        best = scores.argmax(1)
        print(best.tolist())
        index += 1
"""

LOOPS["sum_of_losses_that_is_shown"] = """\
for x, y in loader:
    optimizer.zero_grad()
    first = criterion(model(x), y)
    first.backward()
    second = criterion(model(-x), y)
    second.backward()
    total = first + 0.5 * second.mean()
    optimizer.step()
    print(f"{total.item():.5f}")
"""

LOOPS["a_forward_that_makes_its_state_on_the_host"] = """\
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        # The first state.
        h = torch.zeros(1, x.size(0), 8).to(device)
        c = torch.ones(1, x.size(0), 8, dtype=x.dtype,).to(x.device)
        out, _ = self.cell(x.unsqueeze(1), (h, c))
        return self.head(out[:, -1])


model = Recurrent().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

_TRAINER = """\
class Trainer:
    def __init__(self):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.losses, self.seen_steps, self.shown = [], 0, []

    def clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)

    def norm(self):
        return sum(p.grad.pow(2).sum().item() for p in self.model.parameters())

    def average(self):
        return sum(self.losses[-3:]) / 3

    def weight(self):
        return 0.5 if self.seen_steps > 3 else 1.0

    @property
    def best(self):
        return min(self.losses)

    def last(self):
        return self.loss.item()

    def count(self):
        self.seen_steps += 1

"""
_TRAINED = """\

trainer = Trainer()
for x, y in loader:
    trainer.step(x, y)
print(trainer.losses, trainer.shown, trainer.seen_steps)
"""

LOOPS["a_method_that_clips"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        norm = self.clip()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.shown.append(float(norm))

"""
    + _TRAINED
)

LOOPS["a_method_that_looks_at_gradients"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        norm = self.norm()
        self.optimizer.step()
        self.shown.append(norm)

"""
    + _TRAINED
)

LOOPS["methods_and_properties_of_what_was_logged"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        self.losses.append(loss.item())
        average = self.average()
        best = self.best
        loss.backward()
        self.optimizer.step()
        self.shown.append((average, best))

"""
    + _TRAINED
)

LOOPS["a_method_of_a_counter"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        self.seen_steps += 1
        weight = self.weight()
        loss = weight * self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.shown.append(weight)

"""
    + _TRAINED
)

LOOPS["a_method_that_counts"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        self.count()
        loss = self.weight() * self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.shown.append(self.seen_steps)

"""
    + _TRAINED
)

LOOPS["a_method_of_a_loss_that_is_kept"] = (
    _TRAINER
    + """\
    def step(self, x, y):
        self.optimizer.zero_grad()
        self.loss = self.criterion(self.model(x), y)
        value = self.last()
        self.loss.backward()
        self.optimizer.step()
        self.shown.append(value)

"""
    + _TRAINED
)

LOOPS["a_parameter_taken_by_next"] = """\
first = next(model.parameters())
counts = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    counts.append(int((first > 0.1).sum()))
    loss.backward()
    optimizer.step()
print(counts)
"""

LOOPS["the_model_behind_a_wrapper"] = """\
def unwrapped(model):
    return getattr(model, "module", model)


wrapped = False
raw = model.module if wrapped else model
again = unwrapped(model)
rows = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    rows.append((raw[2].bias.tolist(), again[0].bias.tolist()))
    optimizer.step()
print(rows)
"""

LOOPS["a_view_of_what_is_changed_in_place"] = """\
counts = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    shares = out.detach().softmax(-1)
    first = shares[:, 0]
    counts.append(int((first > 0.4).sum()))
    shares.mul_(0.5)
    loss = criterion(out, y) + 0.0 * shares.sum()
    loss.backward()
    optimizer.step()
print(counts)
"""

LOOPS["another_name_for_a_list"] = """\
history = {"loss": []}
losses = history["loss"]
lengths = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(history["loss"])
    loss.backward()
    optimizer.step()
    lengths.append(n)
print(lengths, losses)
"""

LOOPS["what_is_printed_elsewhere"] = """\
import contextlib
import io

text = io.StringIO()
for x, y in loader:
    optimizer.zero_grad()
    with contextlib.redirect_stdout(text):
        loss = criterion(model(x), y)
        print(loss.item())
    loss.backward()
    optimizer.step()
print(text.getvalue())
"""

LOOPS["names_that_are_looked_up"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print("%(loss)s" % globals())
"""

LOOPS["a_sum_that_is_a_tensor"] = """\
total = torch.zeros(1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total / len(loader))
"""

LOOPS["a_comprehension_with_the_name_of_the_counter"] = """\
weights = [0.25, 1.0]
for i, (x, y) in enumerate(loader):
    outs = [model(x), model(x * 2)]
    loss = sum(weights[i] * criterion(o, y) for i, o in enumerate(outs))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, f"{loss.item():.5f}")
"""

LOOPS["a_comprehension_over_the_counter"] = """\
for i, (x, y) in enumerate(loader):
    loss = sum(criterion(model(x * k), y) for k in range(i + 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LOOPS["copies_in_a_comprehension"] = """\
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, x, y):
        return criterion(self.inner(x), y)


both = Both()
for batch in loader:
    optimizer.zero_grad()
    loss = both(*[part.to(device) for part in batch])
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["copies_in_a_generator"] = """\
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, x, y):
        return criterion(self.inner(x), y)


both = Both()
for batch in loader:
    optimizer.zero_grad()
    loss = both(*(part.to(device) for part in batch))
    loss.backward()
    optimizer.step()
"""

LOOPS["outputs_that_are_copied_in_a_comprehension"] = """\
for x, y in loader:
    optimizer.zero_grad()
    outs = [model(x), model(x * 2)]
    loss = sum([criterion(out.to(device), y) for out in outs])
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_row_of_a_list_that_there_may_not_be"] = """\
use_aux, aux = False, None
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, aux[i]) if use_aux else criterion(out, y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["rows_in_both_branches_of_a_setting"] = """\
import numpy as np


class Settings:
    def __init__(self):
        self.weighted, self.floor = True, 0.0


settings = Settings()
rows = np.arange(6)
weights, floors = torch.rand(6), torch.rand(6)
for start, (x, y) in enumerate(loader):
    picked = rows[start : start + 1]
    out = model(x)
    if settings.weighted and settings.floor is not None:
        loss = (criterion(out, y) * weights[picked]).mean() + floors[picked].sum()
    else:
        loss = criterion(out, y) * weights[picked].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["rows_of_nothing_behind_two_settings"] = """\
use_aux, weighted, aux = True, False, None
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    if use_aux:
        if not weighted:
            loss = loss * 2
        else:
            loss = loss + aux[i] + (aux[i + 1] if weighted else 0)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_row_behind_a_setting_that_the_model_changes"] = """\
class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.warm = model, True

    def forward(self, x):
        self.warm = False
        return self.inner(x)


both, aux = Warm(), [0.5]
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(both(x), y)
    loss = loss + aux[i] if both.warm else loss
    loss.backward()
    optimizer.step()
"""

LOOPS["a_row_behind_a_variable_that_a_function_shares"] = """\
warm, aux = True, [0.5]


def forward(x):
    global warm
    warm = False
    return model(x)


for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(forward(x), y)
    loss = loss + aux[i] if warm else loss
    loss.backward()
    optimizer.step()
"""

LOOPS["a_loss_that_must_be_finite"] = """\
import sys
import math as m
from math import isfinite

meters = []
for x, y in loader:
    out = model(x) / m.sqrt(2.0)
    loss = criterion(out, y)
    loss_value = loss.item()
    if not isfinite(loss_value) or m.isnan(loss_value):
        print("Loss is {}, stopping training".format(loss_value))
        sys.exit(1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meters.append(m.exp(loss_value))
    print(f"{m.fsum(meters):.4f}")
"""

LOOPS["an_error_for_an_unknown_setting"] = """\
method, total = "SimCLR", 0.0
for x, y in loader:
    out = model(x)
    if method == "SupCon":
        loss = criterion(out, y) + out.mean()
    elif method == "SimCLR":
        loss = criterion(out, y)
    else:
        raise ValueError("contrastive method not supported: {}".format(method))
    total += loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{total:.5f}")
"""

LOOPS["an_error_for_a_loss_that_is_not_finite"] = """\
for x, y in loader:
    loss = criterion(model(x), y)
    if not torch.isfinite(loss):
        raise ValueError(f"loss is {loss}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LOOPS["an_error_of_a_forward_that_is_raised_again"] = """\
for x, y in loader:
    if len(x) > 1:
        try:
            loss = criterion(model(x), y)
        except RuntimeError:
            raise ValueError("too large")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

METERS = """\
class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum, self.count = self.sum + value * n, self.count + n


def accuracy(output, target):
    return [(output.argmax(1) == target).float().mean()]


losses, top1, seen = Meter(), Meter(), []
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    losses.update(loss.item(), x.size(0))
    {}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{{losses.sum:.5f}}", float(top1.sum), top1.count, seen)
"""
LOOPS |= {
    "a_meter_of_what_a_function_computes": METERS.format(
        "top1.update(accuracy(out, y)[0], x.size(0))"
    ),
    "a_meter_of_what_it_reads": METERS.format(
        "top1.update(accuracy(out, y)[0].item(), n=x.size(0))"
    ),
    "a_list_of_what_a_function_knows": METERS.format("seen.append(len(vars(top1)))"),
    "a_meter_of_two_that_functions_compute": METERS.format(
        "top1.update(accuracy(out, y)[0], accuracy(out, y)[0])"
    ),
}

LOOPS["a_rate_that_is_kept_in_front_of_the_update"] = """\
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
rates = []
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    rates.append(schedule.get_last_lr()[0])
    optimizer.step()
    schedule.step()
    print(f"{loss.item():.5f} {rates[-1]}")
"""

LOOPS["a_rate_that_is_kept_behind_a_schedule_within_the_step"] = """\
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
rates = []
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
    rates.append(schedule.get_last_lr()[0])
    optimizer.zero_grad()
    print(f"{loss.item():.5f} {rates[-1]}")
"""

LOOPS["a_row_behind_and"] = """\
use_aux, aux = False, None
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y) + (use_aux and criterion(out, aux[i]))
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_row_or_the_batch"] = """\
use_aux, aux = False, None
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), aux[i] if use_aux else y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_row_that_decides"] = """\
doubled = [False, True] * 3
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = 2 * criterion(out, y) if doubled[i] else criterion(out, y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_function_in_the_step_that_shows"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)

    def shown(value):
        return f"{value:.5f}"

    print(shown(loss.item()))
    loss.backward()
    optimizer.step()
"""

LOOPS["a_function_in_the_step_that_computes"] = """\
for x, y in loader:
    optimizer.zero_grad()

    def doubled(value):
        return value * 2

    loss = criterion(doubled(model(x)), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_function_in_the_step_that_computes_and_shows"] = """\
for x, y in loader:
    optimizer.zero_grad()
    doubled = lambda value: value * 2
    loss = criterion(doubled(model(x)), y)
    loss.backward()
    optimizer.step()
    print(f"{doubled(loss.item()):.5f}")
"""

LOOPS["a_function_that_shows_what_it_is_given"] = """\
def shown(value):
    return f"{value:.5f}"


def show(value):
    print(shown(value))


short = lambda value: f"{value:.2f}"
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    show(loss.item())
    print(short(loss.item()))
    loss.backward()
    optimizer.step()
"""

LOOPS["a_function_that_keeps_what_it_shows"] = """\
kept = []


def shown(value):
    kept.append(value)
    return f"{value:.5f}"


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(shown(loss.item()))
    loss.backward()
    optimizer.step()
"""

LOOPS["a_loss_that_is_printed_in_front_of_the_next_forward"] = """\
class Shards:
    def __init__(self):
        self.fetched = 0

    def next_batch(self):
        self.fetched += 1
        return loader[self.fetched % 6][0]


shards = Shards()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    first = F.cross_entropy(out, y)
    print(shards.fetched, f"{first.item():.5f}")
    more = shards.next_batch()
    other = model(more)
    loss = first + F.cross_entropy(other, y)
    loss.backward()
    optimizer.step()
"""

LOOPS["outputs_that_are_kept_in_a_dictionary"] = """\
kept = {}
for x, y in loader:
    optimizer.zero_grad()
    kept["out"] = model(x)
    loss = criterion(kept["out"], y)
    loss.backward()
    optimizer.step()
print(f"{kept['out'].sum().item():.5f}")
"""

LOOPS["a_detached_loss_that_is_printed_in_front_of_the_next_forward"] = """\
class Shards:
    def __init__(self):
        self.fetched = 0

    def next_batch(self):
        self.fetched += 1
        return loader[self.fetched % 6][0]


shards = Shards()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    first = F.cross_entropy(out, y)
    print(shards.fetched, f"{first.item():.5f}")
    more = shards.next_batch()
    other = model(more)
    loss = first.detach() + F.cross_entropy(other, y)
    loss.backward()
    optimizer.step()
"""

LOOPS["a_match_that_binds_in_all_cases"] = """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    match out.ndim:
        case 1:
            scale = 1.0
        case 2 if len(y) > 5:
            scale = 2.0
        case _:
            scale = 3.0
    loss = criterion(out, y) * scale
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_match_that_binds_in_some_cases"] = """\
scale = 1.0
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    match out.ndim:
        case 1:
            scale = 2.0
        case n if n > 5:
            scale = 3.0
    loss = criterion(out, y) * scale
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_branch_that_reads_the_value_of_the_step_before"] = """\
drift = []
before = None
for x, y in loader:
    scores = model(x)
    loss = criterion(scores, y)
    if before is not None:
        drift.append((scores.mean(0) - before).abs().sum().item())
    before = scores.detach().mean(0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print([f"{value:.5f}" for value in drift])
"""

LOOPS["weights_that_a_later_epoch_has_no_more"] = """\
for epoch in range(3):
    weights = torch.rand(3) if epoch < 2 else None
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y, reduction="none")
        if isinstance(weights, torch.Tensor):
            loss = loss * weights.to(device)
        loss = loss.mean()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
"""

LOOPS["a_row_in_both_branches_behind_the_same_test"] = """\
focal = True
for epoch in range(3):
    aux = [0.5] * 10 if epoch < 2 else None
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        out = model(x)
        if focal:
            loss = criterion(out, y) * 2
            if aux is not None:
                loss = loss + aux[i]
        else:
            loss = criterion(out, y)
            if aux is not None:
                loss = loss + aux[i]
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
"""

NO_ROUNDS = """\
for epoch in range(3):
    n_aux = 2 if epoch < 2 else 0
    aux = [0.5] * 10 if epoch < 2 else None
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        {}
        loss.backward()
        optimizer.step()
        print(f"{{loss.item():.5f}}")
"""
LOOPS |= {
    "a_row_in_a_loop_of_no_rounds": NO_ROUNDS.format(
        "for k in range(n_aux):\n            loss = loss + aux[i]"
    ),
    "a_row_in_a_comprehension_of_no_rounds": NO_ROUNDS.format(
        "loss = loss + sum([aux[i] * k for k in range(n_aux)])"
    ),
}

LOOPS["weights_behind_a_break"] = """\
for epoch in range(4):
    aux = torch.rand(3) if epoch < 2 else None
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y, reduction="none")
        for k in range(2):
            if epoch >= 2:
                break
        else:
            loss = loss * aux.to(device)
        loss = loss.mean()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
"""

LOOPS["a_setting_that_a_forward_changes_by_its_name"] = """\
class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.warm, self.calls = model, True, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 4:
            setattr(self, "warm", False)
        return self.inner(x)


both, aux = Warm(), [0.5] * 6
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(both(x), y)
    loss = loss if both.warm else loss + aux[i]
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["rows_that_the_step_has_changed"] = """\
import numpy as np

memory = torch.rand(6, 2)
for i, (x, y) in enumerate(loader):
    rows = np.random.RandomState(i).permutation(6)[:3]
    optimizer.zero_grad()
    out = model(x)
    memory.mul_(0.9)
    loss = criterion(out, y) + F.mse_loss(out, memory[rows])
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

LOOPS["a_rate_that_is_part_of_the_loss"] = """\
sched = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
optimizer.step()
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y) + sched.get_last_lr()[0] * out.pow(2).sum()
    sched.step()
    loss.backward()
    optimizer.step()
    print(i, f"{loss.item():.5f}")
"""

LOOPS["an_entry_that_a_later_epoch_has_no_more"] = """\
cfg = {"aux": torch.rand(3)}
for epoch in range(3):
    if epoch == 2:
        cfg["aux"] = None
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="none")
        if cfg["aux"] is not None:
            loss = loss * cfg["aux"].to(device)
        loss = loss.mean()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
"""

LOOPS["a_copy_whose_error_is_suppressed"] = """\
import contextlib

for epoch in range(3):
    aux = torch.rand(3) if epoch < 2 else None
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="none")
        with contextlib.suppress(AttributeError):
            loss = loss * aux.to(device)
        loss = loss.mean()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
"""

LOOPS["a_loss_that_is_a_number_in_some_epochs"] = """\
critic = nn.Linear(4, 1)
steps = torch.optim.SGD(critic.parameters(), lr=0.1)
for epoch in range(3):
    trains, fooled = epoch != 1, 0.0
    for x, y in loader:
        steps.zero_grad()
        judged = F.softplus(-critic(x)).mean()
        judged.backward()
        steps.step()
        if trains:
            fooled = criterion(model(x), y)
            optimizer.zero_grad()
            fooled.backward()
            optimizer.step()
        shown = fooled.item() if trains else fooled
        print(f"{judged.item():.5f} {shown:.5f}")
"""

LOOPS["a_multiple_of_the_loss_that_is_a_number_in_some_epochs"] = """\
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        extra = 0.0
        if epoch < 2:
            extra = loss * 2
        loss.backward()
        optimizer.step()
        shown = extra.item() if epoch < 2 else extra
        print(f"{loss.item():.5f} {shown:.5f}")
"""

LOOPS["a_norm_that_is_clipped_in_some_epochs"] = """\
norms = []
for epoch in range(3):
    clip = 1.0 if epoch < 2 else 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item() if clip else 0.0)
        optimizer.step()
        print(f"{loss.item():.5f} {norms[-1]:.5f}")
"""

LOOPS["a_loss_whose_graph_is_kept_for_other_gradients"] = """\
def probe(value, of):
    return torch.autograd.grad(value, of)[0].norm().item()


for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    scores = model(x)
    loss = criterion(scores, y)
    loss.backward(retain_graph=True)
    optimizer.step()
    if step == 5:
        print(f"{probe(loss, scores):.5f}")
"""

LOOPS["a_loss_whose_graph_is_kept_and_that_is_only_shown"] = """\
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward(retain_graph=True)
    optimizer.step()
    print(f"{loss.item():.5f}")
"""
