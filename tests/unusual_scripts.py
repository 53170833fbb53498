"""Scripts whose training is hard to see, for tests with and without a GPU.

Each trains on `DEVICE`, and the line at which its step begins ends in `# begins`.
"""

from __future__ import annotations

_HEAD = """
import random, torch
from torch import nn
random.seed(0)
torch.manual_seed(0)
DEVICE = {device!r}
def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()  # begins
    loss.backward()
    optimizer.step()
x = torch.randn(16, 4, device=DEVICE)
"""
_NET = """
net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(DEVICE)
optimizer = torch.optim.Adam(net.parameters())
"""
_FUNC = """
class Func(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
    def forward(self, y):
        return self.net(y)
def solve(func, y, steps):
    for _ in range(steps):
        y = y + 0.01 * func(y)  # begins
    return y
func = Func().to(DEVICE)
"""
_DQN = (
    _NET
    + """
target = nn.Linear(4, 2).to(DEVICE)
for t in range({steps}):
    {acting}
    if t >= {starts} and t % 4 == 0:
        with torch.no_grad():
            aim = target(x).max(1).values  # begins
        loss = (net(x)[:, 0] - aim).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)
_ACTING = "with torch.no_grad(): net(x[:1]).argmax(-1)"

SCRIPTS: dict[str, str] = {
    "an ODE is solved with a throw-away module": _FUNC
    + """
class Lambda(nn.Module):
    def forward(self, y):
        return -y
with torch.no_grad():
    solve(Lambda(), x, 300)
optimizer = torch.optim.Adam(func.parameters())
for i in range(400):
    optimizer.zero_grad()
    loss = solve(func, x, 5).pow(2).mean()
    loss.backward()
    optimizer.step()
""",
    "an optimizer is made for each step": _NET
    + """
for _ in range(60):
    train(net, torch.optim.Adam(net.parameters()), x)
""",
    "as many forwards as the trajectory takes": _FUNC
    + """
optimizer = torch.optim.Adam(func.parameters())
for i in range(120):
    optimizer.zero_grad()
    loss = solve(func, x, random.randint(80, 120)).pow(2).mean()
    loss.backward()
    optimizer.step()
""",
    "a class overrides the call": """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
    def __call__(self, x):
        return self.forward(x)
    def forward(self, x):
        return x * self.scale
model = Own().to(DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for i in range(400):
    optimizer.zero_grad()  # starts
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
""",
    "layers train themselves": """
class Layer(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes, device=DEVICE)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.03)
    def forward(self, x):
        return torch.relu(torch.mm(x, self.weight.T) + self.bias)
    def train(self, x):
        for i in range(400):
            loss = self.forward(x).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()  # starts
        return self.forward(x).detach()
for layer in (Layer(4, 8), Layer(8, 8)):
    x = layer.train(x)
""",
    "functions of tensors": """
weights = [torch.randn(4, 4, device=DEVICE, requires_grad=True) for _ in range(3)]
optimizer = torch.optim.Adam(weights)
for i in range(400):
    optimizer.zero_grad()  # starts
    y = x
    for weight in weights:
        y = torch.tanh(y @ weight) + y
    loss = y.pow(2).mean()
    loss.backward()
    optimizer.step()
""",
    "acts for long before it learns": _DQN.replace("{acting}", _ACTING)
    .replace("{steps}", "4000")
    .replace("{starts}", "2000"),
    "acts and never learns": _DQN.replace("{acting}", _ACTING)
    .replace("{steps}", "3000")
    .replace("{starts}", "5000"),
    "acts for ever": _NET
    + f"""
while True:
    {_ACTING}  # begins
""",
    "mixes three kinds of steps": _NET
    + """
other, third = nn.Linear(4, 2).to(DEVICE), nn.Linear(4, 8).to(DEVICE)
rare = torch.optim.SGD(other.parameters(), lr=0.1), torch.optim.RMSprop(third.parameters())
for i in range(400):
    kind = random.random()
    if kind < 0.2: train(other, rare[0], x)
    elif kind < 0.4: train(third, rare[1], x)
    else: train(net, optimizer, x)
""",
    "adds a term to some losses": _NET
    + """
head = nn.Linear(2, 1).to(DEVICE)
for i in range(400):
    optimizer.zero_grad()
    y = net(x)  # begins
    if random.random() < 0.4: y = head(y)
    y.pow(2).mean().backward()
    optimizer.step()
""",
    "three steps": _NET + "for i in range(3): train(net, optimizer, x)\n",
    "evaluates now and then": _NET
    + """
def evaluate(batches):
    net.eval()
    with torch.no_grad():
        for _ in range(batches): net(x)
    net.train()
evaluate(100)
for i in range(60):
    if i % 7 == 3: evaluate(5)
    train(net, optimizer, x)
""",
    "updates its weights by itself": """
w = torch.zeros(4, 2, device=DEVICE, requires_grad=True)
for i in range(40):
    (x @ w).pow(2).mean().backward()  # begins
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
""",
    "trains in a thread": _NET
    + """
import threading
print(net(x).shape)
def run():
    for i in range(60): train(net, optimizer, x)
thread = threading.Thread(target=run)
thread.start()
thread.join()
""",
    "marks its steps beside a thread that encodes": _NET
    + """
import launchscope, threading
def encode():
    with torch.no_grad():
        while True: net(x)
threading.Thread(target=encode, daemon=True).start()
for i in range(60):
    with launchscope.step():  # begins
        (x @ x.T).relu().sum()
""",
    "steps its optimizers in the backward": _NET
    + """
optimizers = {p: torch.optim.Adam([p], foreach=False) for p in net.parameters()}
def steps(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(steps)
for i in range(60):
    net(x).pow(2).mean().backward()  # begins
""",
    "has two kinds of steps": _NET
    + """
import launchscope
for i in range(60):
    for part in range(2):
        loss = net(x).pow(2).mean()  # forward
        loss.backward()
        optimizer.step()
    if i < 40:
        with launchscope.step():  # marker
            net(x).pow(2).mean().backward()
    optimizer.step()
""",
}


def script(name: str, device: str) -> str:
    return _HEAD.replace("{device!r}", repr(device)) + SCRIPTS[name]
