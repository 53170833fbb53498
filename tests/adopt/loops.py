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

LOOPS["plain"] = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""

LOOPS["a_running_sum"] = """\
for epoch in range(2):
    right, losses, total = 0.0, torch.zeros(2), torch.zeros(())
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        right += (out.argmax(1) == y).float().mean()
        losses[epoch] += loss.detach()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(x)
    print(f"{right / len(loader):.5f} {losses.tolist()} {total:.5f}")
"""

LOOPS["an_average_now_and_then"] = """\
average = [p.detach().clone() for p in model.parameters()]
for number, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 2 == 0:
        torch._foreach_lerp_(average, list(model.parameters()), 0.1)
print(average)
"""

LOOPS["a_state_that_is_detached_first"] = """\
cell = nn.GRUCell(4, 8)
optimizer = torch.optim.SGD([*cell.parameters(), *model.parameters()], lr=0.1)
hidden = torch.zeros(3, 8)
for x, y in loader:
    hidden = hidden.detach()
    x, y = x.to(device), y.to(device)
    hidden = cell(x, hidden)
    loss = criterion(hidden[:, :2], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), hidden.sum().item())
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

LOOPS["micro_steps_with_prefetch"] = """\
import numpy

numpy.random.seed(0)
data = torch.randn(64, 4)
accumulation, clip, distributed = 3, 1.0, False

def get_batch():
    at = numpy.random.randint(60, size=3)
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

LOOPS["several_on_a_line"] = """\
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for x, y in loader:
    loss = criterion(model(x), y); loss.backward()
    optimizer.step(); scheduler.step(); optimizer.zero_grad()
    print(scheduler.get_last_lr())
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

LOOPS["a_closure"] = """\
for x, y in loader:
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
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

LOOPS["accumulation_by_a_counter"] = """\
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
print(f"{loss.item():.5f}")
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

LOOPS["a_step_without_a_loop"] = """\
x, y = loader[0]
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
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

LOOPS["a_hidden_state_in_a_branch"] = """\
kind = "LSTM"
layer = nn.LSTM(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

def apart(states):
    return tuple(state.detach() for state in states)

def train():
    total = 0.0
    if kind != "Transformer":
        hidden = (torch.zeros(1, 4), torch.zeros(1, 4))
    for x, _ in loader:
        optimizer.zero_grad()
        if kind == "Transformer":
            out = x
        else:
            hidden = apart(hidden)
            out, hidden = layer(x, hidden)
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total

print(f"{train():.5f}")
"""

LOOPS["a_line_that_trains_and_keeps"] = """\
losses = []

def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

for x, y in loader:
    losses.append(step(x, y).item())
print(sum(losses))
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

LOOPS["a_name_of_the_runtime_is_taken"] = """\
graphed = False
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

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

LOOPS["a_method_of_a_counter"] = """\
class Trainer:
    def __init__(self):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.losses, self.seen_steps = [], 0

    def weight(self):
        return 0.5 if self.seen_steps > 3 else 1.0

    def step(self, x, y):
        self.optimizer.zero_grad()
        self.seen_steps += 1
        weight = self.weight()
        loss = weight * self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

trainer = Trainer()
for x, y in loader:
    trainer.step(x, y)
print(trainer.losses, trainer.seen_steps)
"""

LOOPS["a_loss_that_is_kept_in_a_branch"] = """\
use_amp, losses = False, []
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if use_amp:
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(model(x), y)
            losses.append(loss.item())
    else:
        loss = criterion(model(x), y)
        losses.append(loss.item())
    if (i + 1) % 2 == 0:
        print(f"{i} {loss.item():.5f}")
    loss.backward()
    optimizer.step()
print(f"{sum(losses):.5f}")
"""

LOOPS["what_an_array_of_the_host_selects"] = """\
import numpy as np

xs, ys, weights = torch.randn(16, 4), torch.randn(16, 2), torch.rand(16, 1)
order = np.arange(16)
large, weighted = [], True
for epoch in range(3):
    np.random.default_rng(epoch).shuffle(order)
    for start in range(0, 16, 4):
        chosen = order[start:start + 4]
        out = model(xs[chosen])
        error = (out - ys[chosen]) * weights[chosen]
        with torch.no_grad():
            large += [(error.abs() > 1).float().mean().item()]
        if weighted:
            loss = (error * weights[chosen]).square().mean()
        else:
            loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{loss.item():.5f}", sum(large))
"""
