# ruff: noqa: E501
"""Loops whose host statements depend on each other in ways that no name shows.

The rewrite must keep their order, or refuse.
"""

_TWO_LOADERS = """\
for step in range(8):
    x, y = next(labeled)
    optimizer.zero_grad()
    one = criterion(model(x), y)
    print(SHOWN, step, one.item())
    u, _ = next(unlabeled)
    other = model(u).square().mean()
    (one + other).backward()
    optimizer.step()
    print(SHOWN, step, other.item())
"""
_RATES = """\
optimizer = torch.optim.RMSprop(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
"""
_SHOWS_RATE = """\
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    SHOWN
    scheduler.step()
    optimizer.step()
"""
_CURRICULUM = """\
optimizer = torch.optim.RMSprop(model.parameters())
class Curriculum:
    def __init__(self):
        self.level, self.calls = 0.0, 0
    def METHOD(self):
        self.calls += 1
        self.level = min(1.0, self.calls / 300)
        return self.level
curriculum = Curriculum()
"""
_DRAWS = """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if i % 2 == 0:
        print(curriculum.level, curriculum.calls)
    noise = CALL
    x = (x + noise).to(device)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
_NOTER = """\
class Noter:
    def __init__(self, value=0.0):
        bind(value)
    def log(self, value):
        self.keep(value)
    def keep(self, value):
        bind(value)
    @property
    def value(self):
        return 0
    @value.setter
    def value(self, value):
        bind(value)
    @classmethod
    def shown(cls, value):
        global temperature
        temperature = 1.0 + value
    def __setitem__(self, key, value):
        bind(value)
    def __lshift__(self, value):
        bind(value)
noter = Noter()
"""
_READER = (
    _NOTER
    + """\
class Reader:
    def __rmul__(self, loss):
        return loss * temperature
    def get(self, loss):
        return self.scaled(loss)
    def scaled(self, loss):
        return loss * temperature
reader = Reader()
"""
)
_SCALED = "criterion(output / temperature, y)"

_STATE = "held = State(); progress = Progress(held); weight = Weight(held)"
_ARRAY = "held = np.zeros(2); weight = Weight(held)"
_LIST = "held = []; weight = Weight(held)"
_BACKWARD = """\
seen = []
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, grad):
        return grad * len(seen)
for x, y in loader:
    optimizer.zero_grad()
    seen.append(len(x))
    loss = criterion(Scaled.apply(model(x)), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
"""

HOST_ORDER = {
    "shown by a function that draws": """\
def show(v):
    return f'{v:.4f} {torch.rand(1).item():.4f}'
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    loss = loss + criterion(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "shown by a function that draws by a name": """\
rand = torch.rand
def show(v):
    return f'{v:.4f} {rand(1).item():.4f}'
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    loss = loss + criterion(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "shown by a function that draws by what it is given": """\
def show(v, f=torch.rand):
    return f'{v:.4f} {f(1).item():.4f}'
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    loss = loss + criterion(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "shown by a function that is bound again": """\
show = lambda v: f'{v:.4f}'
show = lambda v, g=show: g(v) + str(torch.rand(1).item())
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    loss = loss + criterion(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "shown with a number that changes behind it": """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    k = 2
    f = lambda v: f'{v * k:.3f}'
    print(f(loss.item()))
    k = 3
    loss.backward()
    optimizer.step()
    print(k, f(loss.item()))
""",
    "shown with what prints the model": """\
class S:
    def __str__(self):
        return f'{model[0].weight.sum().item():.4f}'
s = S()
def show(v, s):
    return f'{v:.4f} {s}'
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item(), s))
    loss.backward()
    optimizer.step()
""",
    "shown with what adds the model": """\
class S:
    def __add__(self, o):
        return model[0].weight.sum().item() + o
s = S()
def show(v):
    return f'{s + v:.4f}'
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    loss.backward()
    optimizer.step()
""",
    "shown by a function that reads a weight": """\
w = lambda m: m.sum().item()
p = model[0].weight
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(f'{w(p):.4f}', loss.item())
    loss.backward()
    optimizer.step()
""",
    "shown by a function that counts": """\
def train():
    n = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        def show(v):
            nonlocal n
            n += 1
            return f'{v:.4f} {n}'
        print(show(loss.item()))
        loss = loss / n
        loss.backward()
        optimizer.step()
train()
""",
    "shown by a function with a default": """\
k = 0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    def show(v, k=k):
        return f'{v:.4f} {k}'
    loss.backward()
    optimizer.step()
    k += 1
    print(show(loss.item()))
""",
    "shown by a function with a fetched default": """\
it = iter(range(100))
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    def show(v, k=next(it)):
        return f'{v:.4f} {k}'
    print(show(loss.item()), next(it))
    loss.backward()
    optimizer.step()
""",
    "shown by the function of the iteration before": """\
def show(v):
    return 'first'
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(show(loss.item()))
    def show(v):
        return f'{v:.4f}'
    loss.backward()
    optimizer.step()
""",
    "shown by two functions of one name": """\
for x, y in loader:
    optimizer.zero_grad()
    def f(v):
        return v * 2
    loss = criterion(f(model(x)), y)
    def f(v):
        return f'{v:.2f}'
    print(f(loss.item()))
    loss.backward()
    optimizer.step()
""",
    "shown by a function of the step without arguments": """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    def show():
        print(f'{loss.item():.4f}')
    show()
    loss.backward()
    optimizer.step()
""",
    "fetches of a comprehension": """\
source = iter(loader * 3)
for i in range(6):
    optimizer.zero_grad()
    loss = sum(model(next(source)[0]).mean() for k in range(2))
    loss.backward()
    optimizer.step()
    print(f'{loss.item():.5f}')
""",
    "copies of a comprehension under a condition": """\
for batch in loader:
    optimizer.zero_grad()
    loss = criterion(*[model(t.to(device)) if k == 0 else t.to(device) for k, t in enumerate(batch)])
    loss.backward()
    optimizer.step()
    print(f'{loss.item():.5f}')
""",
    "accs topk": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    res = []
    for k in (1, 2):
        res.append((out.topk(k, 1).indices == y[:, None]).any(1).float().mean().item())
    top1, top2 = res if len(res) == 2 else (0, 0)
    loss.backward()
    optimizer.step()
    print(top1, top2)
""",
    "annotated list": """\
history: dict = {"loss": []}
losses: list = history["loss"]
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(history["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "annotated self": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class T:
    def __init__(self):
        self.lm: M = M()
        self.meters: dict = {"loss": self.lm}
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            self.lm.update(loss.item())
            s = len(self.meters["loss"].v)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(s)
T().fit()
""",
    "args temp between fwd bwd": """\
import argparse
args = argparse.Namespace(temp=1.0)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / args.temp
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i, (x, y) in enumerate(loader):
    out1 = model(x)
    args.temp = 0.5
    out2 = model(x)
    args.temp = 1.0
    loss = criterion(out1, y) + criterion(out2, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "args temp forward": """\
import argparse
args = argparse.Namespace(temp=1.0, anneal=3)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / args.temp
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if i % args.anneal == 0:
        args.temp = max(0.5, args.temp * 0.8)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(args.temp, loss.item())
""",
    "attr alias namespace": """\
from types import SimpleNamespace
history = []
state = SimpleNamespace(history=history, step=0)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    history.append(loss.item())
    n = len(state.history)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "cfg update loss class": """\
CFG = {"beta": 0.0}
class Crit(nn.Module):
    def forward(self, out, y):
        return F.cross_entropy(out, y) + CFG["beta"] * out.pow(2).mean()
criterion = Crit()
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    CFG.update(beta=min(1.0, i / 3))
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(CFG["beta"], loss.item())
""",
    "clip after step": """\
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{nn.utils.clip_grad_norm_(model.parameters(), 1e9).item():.4f}")
    optimizer.zero_grad()
""",
    "clip after step kept": """\
kept = []
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    kept.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
    optimizer.zero_grad()
print([k.item() for k in kept])
""",
    "copy of outer made": """\
base = {"run": 1}
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {**base}
    logs.update(loss=loss.item())
    n = len(logs)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "ctx phase inst": """\
class Ctx:
    def __init__(self):
        self.phase = "idle"
class Log:
    def __init__(self, ctx):
        self.ctx, self.rows = ctx, []
    def info(self, k):
        self.rows.append((k, self.ctx.phase))
def run(state, logger):
    for x, y in loader:
        optimizer.zero_grad()
        state.phase = "fwd"
        loss = criterion(model(x), y)
        logger.info("a")
        state.phase = "bwd"
        loss.backward()
        logger.info("b")
        optimizer.step()
c = Ctx(); l = Log(c)
run(c, l)
print(l.rows)
""",
    "dict call made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = dict(step=0)
    logs.update(loss=loss.item())
    items = sorted(logs.items())
    loss.backward()
    optimizer.step()
    print(items)
""",
    "fill batch": """\
it = iter([x for x, y in loader] * 4)
for i in range(5):
    optimizer.zero_grad()
    batch = []
    for _ in range(3):
        batch.append(next(it))
    x = torch.cat(batch)
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(len(batch), loss.item())
""",
    "grad hook list": """\
grads = []
model[0].weight.register_hook(lambda g: grads.append(g.norm().item()))
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    n = len(grads)
    optimizer.step()
    print(n, grads[-1])
""",
    "group self attr": """\
class T:
    def __init__(self):
        self.opt = torch.optim.Adam(model.parameters())
        self.group = self.opt.param_groups[0]
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.9)
        self.lrs = []
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            self.opt.step()
            self.lrs.append(self.group["lr"])
            self.sched.step()
            lr = self.group["lr"]
            self.opt.zero_grad()
            print(lr)
t = T(); t.fit()
print(t.lrs)
""",
    "keep copy then core append": """\
hist = []
for x, y in loader:
    optimizer.zero_grad()
    outs = []
    outs.append(model(x).detach())
    hist.append(list(outs))
    outs.append(model(x * 0.5).detach())
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print([[t.sum().item() for t in h] for h in hist])
""",
    "keep tuple then core pop": """\
hist = []
for x, y in loader:
    optimizer.zero_grad()
    outs = [model(x * s).detach() for s in (1, 2, 3)]
    hist.append(len(outs))
    last = outs.pop()
    loss = criterion(model(x), y) + 0 * last.sum()
    loss.backward()
    optimizer.step()
print(hist)
""",
    "labels list made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    names = []
    for t in y.tolist():
        names.append("pos" if t else "neg")
    loss = criterion(model(x), y)
    npos = names.count("pos")
    loss.backward()
    optimizer.step()
    print(npos, names)
""",
    "lambda record": """\
losses = []
record = lambda v: losses.append(v)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    record(loss.item())
    n = len(losses)
    optimizer.zero_grad()
    print(n)
""",
    "list made accum return": """\
class T:
    def step(self, batch):
        x, y = batch
        optimizer.zero_grad()
        out = model(x)
        losses = [criterion(out, y), 0.1 * out.abs().mean()]
        report = []
        for l in losses:
            report.append(round(l.item(), 4))
        avg = sum(report) / max(len(report), 1)
        sum(losses).backward()
        optimizer.step()
        return avg
t = T()
for b in loader:
    print(t.step(b))
""",
    "list of meters append": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
meters = []
lm = M()
meters.append(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = [len(m.v) for m in meters]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "logger class global list": """\
rows = []
class Logger:
    def log(self, **kw):
        rows.append(kw)
logger = Logger()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    logger.log(loss=loss.item())
    last = rows[-1] if rows else None
    loss.backward()
    optimizer.step()
    print(last)
""",
    "logger ctx func arg": """\
class Logger:
    def __init__(self, ctx):
        self.ctx, self.rows = ctx, []
    def line(self):
        return f"step {self.ctx['step']}"
def run(state, log):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        state["step"] += 1
        head = log.line()
        loss.backward()
        optimizer.step()
        print(head, loss.item())
ctx = {"step": 0}
run(ctx, Logger(ctx))
""",
    "logs dict literal update": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {"lr": optimizer.param_groups[0]["lr"]}
    logs.update({"loss": loss.item()})
    n = len(logs)
    loss.backward()
    optimizer.step()
    print(n, logs)
""",
    "logs nested": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {"train": {}}
    logs["train"].update(loss=loss.item())
    k = list(logs["train"])
    loss.backward()
    optimizer.step()
    print(k)
""",
    "logs update line": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    logs = {}
    logs.update(loss=loss.item())
    logs.update(acc=(out.argmax(1) == y).float().mean().item())
    line = " ".join(f"{k}={v:.4f}" for k, v in logs.items())
    loss.backward()
    optimizer.step()
    print(line)
""",
    "losses pop aux": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {"ce": criterion(out, y), "aux": 0.1 * out.pow(2).mean()}
    rows.append({k: v.item() for k, v in losses.items()})
    aux = losses.pop("aux")
    loss = losses["ce"] + aux
    loss.backward()
    optimizer.step()
print(rows)
""",
    "losses setdefault": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {"ce": criterion(out, y)}
    rows.append(list(losses))
    losses.setdefault("aux", 0.1 * out.pow(2).mean())
    loss = sum(losses.values())
    loss.backward()
    optimizer.step()
print(rows)
""",
    "lr enumerate groups": """\
base = [0.1, 0.01]
optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    for i, g in enumerate(optimizer.param_groups):
        g["lr"] = base[i] * 0.9 ** it
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr enumerate milestone": """\
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if it in (3, 300):
        for i, g in enumerate(optimizer.param_groups):
            g["lr"] *= 0.1
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr logging method tick": """\
class Warm:
    def __init__(self, opt):
        self.opt, self.i = opt, 0
    def tick(self):
        self.i += 1
        for g in self.opt.param_groups:
            g["lr"] = 0.01 / self.i
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    warm.tick()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "lr method zero last": """\
class T:
    def __init__(self):
        self.opt = torch.optim.Adam(model.parameters(), lr=0.01)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.9)
    def lr(self):
        return self.opt.param_groups[0]["lr"]
    def fit(self):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            self.opt.step()
            lr = self.lr()
            self.sched.step()
            after = self.lr()
            self.opt.zero_grad()
            print(lr, after)
T().fit()
""",
    "lr zip groups": """\
base = [0.1]
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for b, g in zip(base, optimizer.param_groups):
        g["lr"] = b / (it + 1)
    optimizer.step()
    print(loss.item())
""",
    "meters classmethod": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class Board:
    def __init__(self, meters):
        self.meters = meters
    @classmethod
    def of(cls, *m):
        return cls(m)
    def show(self):
        return [len(m.v) for m in self.meters]
lm = M()
board = Board.of(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = board.show()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "meters dict call": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
loss_meter = Meter()
meters = dict(loss=loss_meter)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    n = meters["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "meters dict item": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
loss_meter = Meter()
meters = {}
meters["loss"] = loss_meter
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    n = meters["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "meters factory": """\
class M:
    def __init__(self):
        self.v = []
    def update(self, v):
        self.v.append(v)
class Board:
    def __init__(self, meters):
        self.meters = meters
    def show(self):
        return [len(m.v) for m in self.meters]
def make_board(*m):
    return Board(m)
lm = M()
board = make_board(lm)
for x, y in loader:
    loss = criterion(model(x), y)
    lm.update(loss.item())
    s = board.show()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(s)
""",
    "method returning alias": """\
class Logger:
    def __init__(self):
        self.d = {}
    def history(self, k):
        return self.d.setdefault(k, [])
    def log(self, k, v):
        self.history(k).append(v)
logger = Logger()
losses = logger.history("loss")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    logger.log("loss", loss.item())
    n = len(losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "metric logger mid": """\
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, v):
        self.total += v
        self.count += 1
class MetricLogger:
    def __init__(self):
        self.meters = {}
    def add_meter(self, k, m):
        self.meters[k] = m
    def __str__(self):
        return " ".join(f"{k}: {m.total:.4f}" for k, m in self.meters.items())
ml = MetricLogger()
lm = Meter()
ml.add_meter("loss", lm)
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    lm.update(loss.item())
    msg = str(ml)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(msg)
""",
    "monitor built in function": """\
class Monitor:
    def __init__(self, net):
        self.net = net
    def norm(self):
        return sum(p.grad.norm().item() for p in self.net.parameters() if p.grad is not None)
def build():
    return Monitor(model)
mon = build()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    g = mon.norm()
    optimizer.step()
    print(g)
""",
    "monitor from optimizer": """\
class Monitor:
    def __init__(self, opt):
        self.opt = opt
    def norm(self):
        return sum(p.grad.norm().item() for g in self.opt.param_groups for p in g["params"] if p.grad is not None)
mon = Monitor(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    g = mon.norm()
    optimizer.step()
    print(g)
""",
    "monitor renamed param": """\
class Monitor:
    def __init__(self, net):
        self.net = net
    def grad_norm(self):
        return sum(p.grad.norm().item() for p in self.net.parameters() if p.grad is not None)
class Trainer:
    def __init__(self, net, opt, mon):
        self.net, self.opt, self.mon = net, opt, mon
    def fit(self):
        for x, y in loader:
            self.opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            g = self.mon.grad_norm()
            self.opt.step()
            print(g)
Trainer(model, optimizer, Monitor(model)).fit()
""",
    "multi assign lists": """\
train_losses = all_losses = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    train_losses.append(loss.item())
    n = len(all_losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "other property grad": """\
class Mon:
    def __init__(self, m):
        self.m = m
    @property
    def grad_norm(self):
        return sum(p.grad.norm() for p in self.m.parameters() if p.grad is not None)
mon = Mon(model)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(mon.grad_norm)
    optimizer.zero_grad()
""",
    "params alias function": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, v):
        self.sum += v
        self.n += 1
class Report:
    def __init__(self, m):
        self.m = m
    def line(self):
        return f"{self.m.sum / max(1, self.m.n):.4f}"
def train(meter, report):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        meter.update(loss.item())
        line = report.line()
        loss.backward()
        optimizer.step()
        print(line)
m = Meter()
r = Report(m)
train(m, r)
""",
    "params alias trainer": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, v):
        self.sum += v
        self.n += 1
class Report:
    def __init__(self, m):
        self.m = m
    def line(self):
        return f"{self.m.sum / max(1, self.m.n):.4f}"
class Trainer:
    def __init__(self, meter, report):
        self.meter, self.report = meter, report
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.meter.update(loss.item())
            line = self.report.line()
            loss.backward()
            optimizer.step()
            print(line)
m = Meter()
Trainer(m, Report(m)).fit()
""",
    "params renamed list": """\
def train(net, opt, tracked):
    rows = []
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        rows.append([t.detach().clone() for t in tracked])
        opt.step()
    print([sum(t.sum().item() for t in r) for r in rows])
train(model, optimizer, [model[0].weight, model[2].bias])
""",
    "per class acc": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    accs = []
    for c in range(2):
        m = y == c
        accs.append((out.argmax(1)[m] == c).sum().item())
    best = max(accs)
    loss.backward()
    optimizer.step()
    print(best, accs)
""",
    "print keys then core update": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    losses = {}
    losses.update(ce=criterion(out, y))
    print(sorted(losses))
    losses.update(l2=0.1 * out.pow(2).mean())
    loss = sum(losses.values())
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "print len then core append": """\
for x, y in loader:
    optimizer.zero_grad()
    outs = []
    outs.append(model(x))
    print("parts", len(outs))
    outs.append(model(x * 0.5))
    loss = sum(criterion(o, y) for o in outs)
    loss.backward()
    optimizer.step()
""",
    "progress attr": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
class Progress:
    def __init__(self):
        self.meters = []
    def summary(self):
        return " ".join(f"{m.avg:.4f}" for m in self.meters)
loss_meter = Meter()
progress = Progress()
progress.meters = [loss_meter]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss_meter.update(loss.item(), x.size(0))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "progress list var": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n
class Progress:
    def __init__(self, *meters, prefix=""):
        self.meters = meters
    def summary(self):
        return " ".join(f"{m.avg:.4f}" for m in self.meters)
loss_meter, acc_meter = Meter(), Meter()
progress = Progress(loss_meter, acc_meter, prefix="x")
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    acc_meter.update((out.argmax(1) == y).float().mean().item(), x.size(0))
    loss_meter.update(loss.item(), x.size(0))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "property weights renamed": """\
class Mon:
    def __init__(self, m):
        self.m = m
    @property
    def norm(self):
        return sum(p.norm().item() for p in self.m.parameters())
def train(net, opt, monitor):
    rows = []
    for x, y in loader:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        rows.append(monitor.norm)
        opt.step()
    print(rows)
train(model, optimizer, Mon(model))
""",
    "record func zero last": """\
history = []
def record(v):
    history.append(v)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    record(loss.item())
    n = len(history)
    optimizer.zero_grad()
    print(n)
""",
    "sched list": """\
optimizer = torch.optim.Adam(model.parameters())
scheds = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(optimizer.param_groups[0]["lr"])
    [s.step() for s in scheds]
    optimizer.zero_grad()
""",
    "set add made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    seen = set()
    for t in out.argmax(1).tolist():
        seen.add(t)
    k = len(seen)
    loss.backward()
    optimizer.step()
    print(k, seen)
""",
    "set lr noreturn before": """\
class Warm:
    def __init__(self, opt):
        self.opt, self.i = opt, 0
    def update(self, n):
        self.i += n
        for g in self.opt.param_groups:
            g["lr"] = 0.01 / self.i
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    warm.update(1)
    optimizer.step()
    print(loss.item())
""",
    "set lr object": """\
class Warm:
    def __init__(self, opt, base, n):
        self.opt, self.base, self.n, self.i = opt, base, n, 0
    def apply(self):
        self.i += 1
        lr = self.base * min(1, self.i / self.n)
        for g in self.opt.param_groups:
            g["lr"] = lr
        return lr
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
warm = Warm(optimizer, 0.01, 4)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    prev = optimizer.param_groups[0]["lr"]
    lr = warm.apply()
    optimizer.step()
    print(prev, lr, loss.item())
""",
    "setdefault alias": """\
hist = {}
losses = hist.setdefault("loss", [])
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "shared state created elsewhere": """\
class State:
    def __init__(self):
        self.step = 0
class Sched:
    def __init__(self, state):
        self.state = state
    def beta(self):
        return min(1.0, self.state.step / 4)
def build():
    s = State()
    return s, Sched(s)
state, sched = build()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    state.step += 1
    beta = sched.beta()
    loss.backward()
    optimizer.step()
    print(beta, loss.item())
""",
    "sort inplace": """\
rows = []
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    order = [2, 0, 1]
    rows.append(list(order))
    order.sort()
    loss = criterion(out[order], y[order])
    loss.backward()
    optimizer.step()
print(rows)
""",
    "split left func": """\
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
def weight_norm():
    return sum(p.norm() for p in model.parameters()).item()
log = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    log.append((nn.utils.clip_grad_norm_(model.parameters(), 1.0).item(), weight_norm()))
    optimizer.step()
print(log)
""",
    "stats dict func": """\
stats = {"n": 0, "sum": 0.0}
def track(v):
    stats["n"] += 1
    stats["sum"] += v
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    track(loss.item())
    avg = stats["sum"] / stats["n"]
    optimizer.zero_grad()
    print(avg)
""",
    "super call": """\
class Base:
    def compute(self, x, y):
        return criterion(model(x), y)
class T(Base):
    def compute(self, x, y):
        return super().compute(x, y) * 2
    def step(self, x, y):
        optimizer.zero_grad()
        loss = super().compute(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()
t = T()
for x, y in loader:
    print(t.step(x, y))
""",
    "targets list made": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    w = [1.0]
    for t in y.tolist():
        w.append(2.0 if t else 1.0)
    loss = criterion(model(x), y) * sum(w)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "temp schedule add": """\
class Temp:
    def __init__(self):
        self.v, self.i = 1.0, 0
    def add(self, n):
        self.i += n
        if self.i > 9:
            self.v = 0.5
temp = Temp()
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        return self.l(x) / temp.v
model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    temp.add(len(x))
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "token counter attr": """\
class Counter:
    def __init__(self):
        self.n = 0
    def add(self, k):
        self.n += k
class Run: pass
run = Run()
c = Counter()
run.counter = c
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    c.add(x.numel())
    seen = run.counter.n
    loss.backward()
    optimizer.step()
    print(seen)
""",
    "trainer method logs2": """\
class T:
    def step(self, x, y):
        optimizer.zero_grad()
        out = model(x)
        losses = [criterion(out, y), 0.1 * out.pow(2).mean()]
        vals = []
        for v in losses:
            vals.append(v.item())
        mean = sum(vals) / 2
        loss = sum(losses)
        loss.backward()
        optimizer.step()
        return mean
t = T()
for x, y in loader:
    print(t.step(x, y))
""",
    "trainer progress in init": """\
class Meter:
    def __init__(self):
        self.s = self.n = 0
    def update(self, v):
        self.s += v; self.n += 1
class Trainer:
    def __init__(self):
        self.loss_m, self.acc_m = Meter(), Meter()
        self.meters = {"loss": self.loss_m, "acc": self.acc_m}
    def line(self):
        return " ".join(f"{k}={m.s:.4f}" for k, m in self.meters.items())
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.loss_m.update(loss.item())
            text = self.line()
            loss.backward()
            optimizer.step()
            print(text)
Trainer().fit()
""",
    "tuple alias": """\
hist = {"loss": [], "acc": []}
losses, accs = hist["loss"], hist["acc"]
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "tuple assigned meters in function": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
def train(epoch):
    losses, top1 = Meter(), Meter()
    meters = {"loss": losses, "top1": top1}
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        losses.update(loss.item(), len(x))
        n = meters["loss"].n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(n)
for e in range(2):
    train(e)
""",
    "tuple assigned meters list": """\
class Meter:
    def __init__(self):
        self.sum = self.n = 0
    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
class Progress:
    def __init__(self, meters):
        self.meters = meters
    def summary(self):
        return " ".join(f"{m.sum / max(1, m.n):.4f}" for m in self.meters)
losses, top1 = Meter(), Meter()
progress = Progress([losses, top1])
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    losses.update(loss.item(), len(x))
    line = progress.summary()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "tuple container": """\
losses, accs = [], []
hist = {"loss": losses, "acc": accs}
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "tuple container defaultdict": """\
from collections import defaultdict, deque
losses = deque(maxlen=100)
hist = {"loss": losses}
for x, y in loader:
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(hist["loss"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n)
""",
    "vals append sum": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    parts = [criterion(out, y), 0.1 * out.pow(2).mean()]
    vals = []
    for p in parts:
        vals.append(p.item())
    total = sum(vals)
    loss = sum(parts)
    loss.backward()
    optimizer.step()
    print(total, vals)
""",
    "wd schedule inside": """\
for it, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for i, g in enumerate(optimizer.param_groups):
        g["lr"] = 0.1 * 0.9 ** it
        if i == 0:
            g["weight_decay"] = 0.01 * it
    lr, wd = optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]
    optimizer.step()
    print(lr, wd)
""",
    "bus decorator again": """\
class Bus:
    def __init__(self):
        self.handlers = {}
    def on(self, name):
        def deco(f):
            self.handlers.setdefault(name, []).append(f)
            return f
        return deco
    def log(self, name, v):
        for h in self.handlers.get(name, []):
            h(v)
bus = Bus()
history = []
@bus.on("loss")
def keep(v):
    history.append(v)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    bus.log("loss", loss.item())
    n = len(history)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "bus register again": """\
class Bus:
    def __init__(self):
        self.handlers = []
    def register(self, f):
        self.handlers.append(f)
    def log(self, v):
        for h in self.handlers:
            h(v)
bus = Bus()
history = []
def keep(v):
    history.append(v)
bus.register(keep)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    bus.log(loss.item())
    n = len(history)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "callbacks append made again": """\
class State:
    def __init__(self):
        self.losses = []
class History:
    def __init__(self, st):
        self.st = st
    def log(self, v):
        self.st.losses.append(v)
state = State()
callbacks = []
callbacks.append(History(state))
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    for cb in callbacks:
        cb.log(loss.item())
    n = len(state.losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "callbacks dispatch again": """\
history = []
def on_loss(v):
    history.append(v)
dispatch = {"loss": on_loss}
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    dispatch["loss"](loss.item())
    n = len(history)
    optimizer.zero_grad()
    print(n)
""",
    "callbacks literal made again": """\
class History:
    def __init__(self, sink):
        self.sink = sink
    def update(self, v):
        self.sink.append(v)
losses = []
callbacks = [History(losses), History([])]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    for cb in callbacks:
        cb.update(loss.item())
    n = len(losses)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "class count dunder again": """\
class Meter:
    count = 0
    def update(self, v):
        self.__class__.count += 1
meter = Meter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    meter.update(loss.item())
    n = Meter.count
    loss.backward()
    optimizer.step()
    print(n)
""",
    "class count type self again": """\
class Meter:
    count = 0
    def __init__(self):
        self.v = []
    def update(self, v):
        type(self).count += 1
        self.v.append(v)
meter = Meter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    meter.update(loss.item())
    n = Meter.count
    loss.backward()
    optimizer.step()
    print(n)
""",
    "class list shared again": """\
class Meter:
    log_all = []
    def update(self, v):
        self.log_all.append(v)
a, b = Meter(), Meter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    a.update(loss.item())
    n = len(b.log_all)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "classmethod by instance again": """\
class Reg:
    n = 0
    @classmethod
    def add(cls, v):
        cls.n += 1
reg = Reg()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    reg.add(loss.item())
    n = Reg.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "getattr call again": """\
class Meter:
    def __init__(self):
        self.n = 0
    def update(self, v):
        self.n += 1
meter = Meter()
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    getattr(meter, "update")(loss.item())
    n = meter.n
    optimizer.zero_grad()
    print(n)
""",
    "lshift operator again": """\
class Meter:
    def __init__(self):
        self.n = 0
    def __lshift__(self, v):
        self.n += 1
        return self
meter = Meter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    meter << loss.item()
    n = meter.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "np add at again": """\
import numpy as np
counts = np.zeros(2)
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    np.add.at(counts, out.argmax(1).numpy(), 1)
    freq = counts / counts.sum()
    loss.backward()
    optimizer.step()
    print(freq)
""",
    "registry global again": """\
METERS = {}
class Meter:
    def __init__(self, name):
        self.n = 0
        METERS[name] = self
    def update(self, v):
        self.n += 1
m = Meter("loss")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    m.update(loss.item())
    n = METERS["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "setitem side effect again": """\
class Board(dict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v)
        changes.append(k)
changes = []
board = Board()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    board["loss"] = loss.item()
    n = len(changes)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "track returns len again": """\
def track(meter, v):
    meter.append(v)
    return sum(meter) / len(meter)
window = []
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    avg = track(window, loss.item())
    n = len(window)
    optimizer.zero_grad()
    print(avg, n)
""",
    "update item argument again": """\
def update_avg(m, v):
    m["s"] += v
    m["n"] += 1
meters = {"train": {"s": 0.0, "n": 0}}
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    update_avg(meters["train"], loss.item())
    n = meters["train"]["n"]
    optimizer.zero_grad()
    print(n)
""",
    "update keyword argument again": """\
def update_avg(value, meter):
    meter["s"] += value
    meter["n"] += 1
meter = {"s": 0.0, "n": 0}
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    update_avg(value=loss.item(), meter=meter)
    n = meter["n"]
    optimizer.zero_grad()
    print(n)
""",
    "weakset instances again": """\
class Meter:
    def __init__(self):
        self.n = 0
        instances.append(self)
    def update(self, v):
        self.n += 1
instances = []
m = Meter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    m.update(loss.item())
    n = instances[0].n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "early stop trace func again": """\
class Stopper:
    def __init__(self, on_best=None):
        self.on_best, self.best = on_best, 9e9
    def update(self, v):
        if v < self.best:
            self.best = v
            if self.on_best:
                self.on_best()
snap = {}
def keep():
    snap.update({k: v.clone() for k, v in model.state_dict().items()})
stopper = Stopper(on_best=keep)
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    stopper.update(loss.item())
    loss.backward()
    optimizer.step()
""",
    "event dict of lists again": """\
from collections import defaultdict
hooks = defaultdict(list)
def register(event):
    def deco(f):
        hooks[event].append(f)
        return f
    return deco
@register("loss")
def snapshot(v):
    saved.append(model[0].weight.sum().item())
saved = []
class Engine:
    def log(self, event, v):
        for h in hooks[event]:
            h(v)
engine = Engine()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    engine.log("loss", loss.item())
    loss.backward()
    optimizer.step()
    print(saved[-1])
""",
    "forward hook count again": """\
calls = []
def hook(m, i, o):
    calls.append(1)
model.register_forward_hook(hook)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    n = len(calls)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "forward hook feature again": """\
feats = {}
def hook(m, i, o):
    feats["h"] = o.detach()
model[0].register_forward_hook(hook)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    h = feats["h"]
    loss.backward()
    optimizer.step()
    print(h.norm().item(), loss.item())
""",
    "trainer self log hooks again": """\
class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt, self.hooks = model, opt, []
    def add_hook(self, f):
        self.hooks.append(f)
    def log(self, v):
        for f in self.hooks:
            f(v)
    def fit(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            loss = criterion(self.model(x), y)
            self.log(loss.item())
            loss.backward()
            self.opt.step()
def report(v):
    print("w", round(model[0].weight.sum().item(), 4), "loss", round(v, 4))
t = Trainer(model, optimizer)
t.add_hook(report)
t.fit(loader)
""",
    "global step counter in model again": """\
class Net(nn.Module):
    calls = 0
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
    def forward(self, x):
        Net.calls += 1
        return self.l(x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    out = net(x)
    n = Net.calls
    loss = criterion(out, y)
    loss.backward()
    opt.step()
    print(loss.item(), n)
""",
    "hook activation stats mid again": """\
acts = {}
def hook(m, i, o):
    acts["relu"] = o.detach()
model[1].register_forward_hook(hook)
model(loader[0][0])
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    out = model(x)
    relu = acts["relu"]
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    print(i, (relu == 0).float().mean().item(), loss.item())
""",
    "suppress error again": """\
import contextlib
batches = loader[:2] + [(torch.randn(3, 4), torch.tensor([0, 5, 1]))] + loader[2:]
seen = []
for i, (x, y) in enumerate(batches):
    with contextlib.suppress(IndexError):
        optimizer.zero_grad()
        out = model(x)
        seen.append(out.sum().item())
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
print(seen)
""",
    "suppress function again": """\
import contextlib
batches = loader[:2] + [(torch.randn(3, 4), torch.tensor([0, 5, 1]))] + loader[2:]
seen = []
def step(x, y):
    optimizer.zero_grad()
    out = model(x)
    seen.append(out.sum().item())
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
for i, (x, y) in enumerate(batches):
    with contextlib.suppress(IndexError):
        step(x, y)
print(seen)
""",
    "teacher hook feature again": """\
acts = {}
def save(name):
    def hook(m, i, o):
        acts[name] = o
    return hook
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
teacher[0].register_forward_hook(save("t"))
model[0].register_forward_hook(save("s"))
with torch.no_grad():
    teacher(loader[0][0])
model(loader[0][0])
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    with torch.no_grad():
        teacher(x)
    t_feat = acts["t"].detach()
    loss = criterion(out, y) + F.mse_loss(acts["s"], t_feat)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "timer with name again": """\
class Timer:
    def __init__(self):
        self.n = 0
    def __enter__(self):
        print("enter"); return self
    def __exit__(self, *a):
        self.n += 1
        print("exit", self.n)
timer = Timer()
for x, y in loader:
    optimizer.zero_grad()
    with timer:
        loss = criterion(model(x), y)
        print(loss.item())
    loss.backward()
    optimizer.step()
""",
    "try around call method again": """\
batches = loader[:2] + [(torch.randn(3, 4), torch.tensor([0, 5, 1]))] + loader[2:]
class T:
    def __init__(self):
        self.seen = []
    def step(self, x, y):
        optimizer.zero_grad()
        out = model(x)
        self.seen.append(out.sum().item())
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
    def fit(self):
        for i, (x, y) in enumerate(batches):
            try:
                self.step(x, y)
            except Exception as e:
                print("skipped", i)
t = T(); t.fit()
print(t.seen)
""",
    "global via registered again": """\
TEMP = {"t": 1.0}
def cool(v):
    TEMP["t"] *= 0.9
class Bus:
    def __init__(self):
        self.fs = []
    def add(self, f):
        self.fs.append(f)
    def log(self, v):
        for f in self.fs:
            f(v)
bus = Bus()
bus.add(cool)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    bus.log(out.abs().mean().item())
    t = TEMP["t"]
    loss = criterion(out / t, y)
    loss.backward()
    optimizer.step()
    print(loss.item(), t)
""",
    "model temp by callback again": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 2)
        self.temp = 1.0
    def forward(self, x):
        return self.l(x) / self.temp
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def cool(v):
    net.temp *= 0.9
class Bus:
    def __init__(self, *fs):
        self.fs = fs
    def log(self, v):
        for f in self.fs:
            f(v)
bus = Bus(cool)
for x, y in loader:
    opt.zero_grad()
    out = net(x)
    bus.log(out.abs().mean().item())
    loss = criterion(out, y) + net(x * 2).mean()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    "reinforce baseline alias again": """\
class Baseline:
    def __init__(self, store):
        self.store = store
    def update(self, r):
        self.store["v"] = 0.9 * self.store["v"] + 0.1 * r
store = {"v": 0.0}
trackers = []
trackers.append(Baseline(store))
for x, y in loader:
    out = model(x)
    logp = F.log_softmax(out, 1).gather(1, y[:, None]).squeeze(1)
    reward = (out.argmax(1) == y).float()
    for t in trackers:
        t.update(reward.mean().item())
    adv = reward - store["v"]
    loss = -(adv * logp).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), store["v"])
""",
    "np shuffle object again": """\
import numpy as np
class Buf:
    def __init__(self):
        self.v = []
    def push(self, v):
        self.v.append(v)
        np.random.shuffle(self.v)
buf = Buf()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    buf.push(out.mean().item())
    lam = np.random.beta(1, 1)
    loss = criterion(out * lam, y)
    loss.backward()
    optimizer.step()
    print(loss.item(), buf.v)
""",
    "rng reservoir before sampling again": """\
import random
class Reservoir:
    def __init__(self, k):
        self.k, self.items, self.n = k, [], 0
    def add(self, v):
        self.n += 1
        if len(self.items) < self.k:
            self.items.append(v)
        else:
            self._swap(v)
    def _swap(self, v):
        self.items[random.randrange(self.k)] = v
res = Reservoir(2)
perm = list(range(3))
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    res.add(out.mean().item())
    random.shuffle(perm)
    loss = criterion(out[perm], y[perm])
    loss.backward()
    optimizer.step()
    print(loss.item(), res.items, perm)
""",
    "shared rng global seed again": """\
import random
class Aug:
    def scale(self):
        return random.uniform(0.5, 1.5)
class Eps:
    def __init__(self):
        self.h = []
    def record(self, v):
        self.h.append(v if self.coin() else -v)
    def coin(self):
        return random.random() < 0.5
aug, eps = Aug(), Eps()
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    eps.record(out.mean().item())
    s = aug.scale()
    loss = criterion(out * s, y)
    loss.backward()
    optimizer.step()
    print(loss.item(), eps.h[-1])
""",
    "autocast var with again": """\
amp = torch.autocast("cpu", torch.bfloat16)
w = torch.randn(2, 2)
for x, y in loader:
    optimizer.zero_grad()
    with amp:
        out = model(x)
        m = [(out @ w).mean().item(), (out @ w).max().item()]
        loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    print(m)
""",
    "early stop class flag again": """\
class Flags:
    stop = False
class ES:
    def update(self, v):
        if v < 0.6: type(self).stop = True
    stop = False
es = ES()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    es.update(loss.item())
    stop = ES.stop
    loss.backward()
    optimizer.step()
    print(loss.item())
    if stop:
        break
""",
    "scope object variable again": """\
class Scope:
    def __init__(self, log): self.log = log
    def __enter__(self): self.log.prefix = "fwd/"
    def __exit__(self, *a): self.log.prefix = ""
class L:
    def __init__(self): self.prefix = ""; self.rows = []
    def log(self, k, v): self.rows.append((self.prefix + k, v))
log = L()
fwd = Scope(log)
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with fwd:
        loss = criterion(model(x), y)
        log.log("loss", loss.item())
    loss.backward()
    optimizer.step()
    print(log.rows[-1])
""",
    "self timer attr with again": """\
class Timer:
    def __init__(self): self.total = 0
    def __enter__(self): self.total += 1; return self
    def __exit__(self, *a): self.total += 10
class Trainer:
    def __init__(self): self.timer = Timer(); self.rows = []
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            with self.timer:
                loss = criterion(model(x), y)
                self.rows.append((self.timer.total, loss.item()))
            loss.backward()
            optimizer.step()
            print(self.rows[-1])
Trainer().fit()
""",
    "dropout set by bus again": """\
drop = nn.Dropout(0.5)
net = nn.Sequential(nn.Linear(4, 8), drop, nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def relax(v): drop.p = max(0.0, drop.p - 0.1)
class Ctl:
    def __init__(self, f): self.f = f
    def log(self, v): self.f(v)
ctl = Ctl(relax)
for x, y in loader:
    opt.zero_grad()
    out = net(x)
    ctl.log(out.mean().item())
    loss = criterion(net(x), y) + out.mean()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    "keeper lambda again": """\
import copy
class Keeper:
    def __init__(self, get): self.best, self.get = 9e9, get
    def update(self, v):
        if v < self.best:
            self.best, self.copy = v, copy.deepcopy(self.get())
def current():
    return model
keeper = Keeper(current)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    keeper.update(loss.item())
    loss.backward()
    optimizer.step()
""",
    "meters listcomp expr again": """\
class Meter:
    def __init__(self): self.n = 0
    def update(self, v): self.n += 1
lm, am = Meter(), Meter()
meters = [lm, am]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    [m.update(v) for m, v in zip(meters, [loss.item(), 0])]
    n = lm.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "running window slice again": """\
window = []
view = window
def push(w, v, k=3):
    w.append(v)
    if len(w) > k: w.pop(0)
    return w
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    last = push(window, loss.item())
    n, s = len(window), max(window)
    optimizer.zero_grad()
    print(n, s)
""",
    "zip object meters again": """\
class Meter:
    def __init__(self): self.n = 0
    def update(self, v): self.n += 1
class Group:
    pass
g = Group()
g.ce, g.l2 = Meter(), Meter()
ce = g.ce
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    for name in ("ce", "l2"):
        getattr(g, name).update(loss.item())
    n = ce.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "np copyto obs again": """\
import numpy as np
obs = np.zeros(2)
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    np.copyto(obs, out.detach().numpy().mean(0))
    scale = obs[0]
    loss.backward()
    optimizer.step()
    print(scale)
""",
    "stringio print plain again": """\
import io
class Sink:
    def __init__(self): self.n = 0
    def write(self, s): self.n += len(s)
    def flush(self): pass
sink = Sink()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    print(round(loss.item(), 4), file=sink)
    n = sink.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "wrapped counter again": """\
import functools
def counted(f):
    @functools.wraps(f)
    def g(*a):
        g.calls += 1
        return f(*a)
    g.calls = 0
    return g
@counted
def note(v):
    return v
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    v = note(loss.item())
    n = note.calls
    optimizer.zero_grad()
    print(n, v)
""",
    "logger writes global via method again": """\
rows = []
class Store:
    def put(self, v): rows.append(v)
class L:
    def __init__(self): self.s = Store()
    def log(self, v): self.s.put(v)
log = L()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    log.log(loss.item())
    n = len(rows)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "print nested given mid again": """\
class Out:
    def emit(self, m): print(m)
class L:
    def __init__(self): self.o = Out()
    def log(self, m): self.o.emit(m)
log = L()
class Sched:
    def value(self, i):
        log.log(f"value {i}")
        return 1.0 / (1 + i)
s = Sched()
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    ce = criterion(model(x), y)
    print("ce", round(ce.item(), 4))
    v = s.value(i)
    loss = ce * v
    loss.backward()
    optimizer.step()
""",
    "trainer hooks dict methods again": """\
class Trainer:
    def __init__(self):
        self.hooks = {"loss": [self.count_loss]}
        self.seen = 0
    def count_loss(self, v): self.seen += 1
    def log(self, name, v):
        for h in self.hooks[name]: h(v)
    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.log("loss", loss.item())
            seen = self.seen
            loss.backward()
            optimizer.step()
            print(seen)
Trainer().fit()
""",
    "trainer hooks every k again": """\
class Trainer:
    def __init__(self):
        self.hooks, self.rows = [], []
        self.add(self.keep)
    def add(self, f): self.hooks.append(f)
    def keep(self, v): self.rows.append(v)
    def log(self, v):
        for h in self.hooks: h(v)
    def fit(self):
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            if i % 2 == 0:
                self.log(loss.item())
            k = len(self.rows)
            loss.backward()
            optimizer.step()
            print(i, k)
Trainer().fit()
""",
    "spread of a meter behind its tracker": """\
import types
meter, tracker = types.SimpleNamespace(seen=0.0), types.SimpleNamespace()
meter.std = lambda: meter.seen
tracker.update = lambda v: setattr(meter, "seen", meter.seen + 1.0)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    tracker.update(loss.item())
    spread = meter.std()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}", spread)
""",
    "spread of a chosen meter behind its tracker": """\
import types
meter, tracker = types.SimpleNamespace(seen=0.0), types.SimpleNamespace()
meter.std = lambda: meter.seen
tracker.update = lambda v: setattr(meter, "seen", meter.seen + 1.0)
meters = {"loss": meter}
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    tracker.update(loss.item())
    one = meters["loss"]
    spread = one.std()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}", spread)
""",
    "spread of a meter that scales the loss": """\
import types
meter, tracker = types.SimpleNamespace(seen=0.0), types.SimpleNamespace()
meter.std = lambda: meter.seen
tracker.update = lambda v: setattr(meter, "seen", meter.seen + 1.0)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    tracker.update(loss.item())
    spread = meter.std() + 1
    loss = loss * spread
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}", spread)
""",
    "spread of a meter in front of its tracker": """\
import types
meter, tracker = types.SimpleNamespace(seen=0.0), types.SimpleNamespace()
meter.std = lambda: meter.seen
tracker.update = lambda v: setattr(meter, "seen", meter.seen + 1.0)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    spread = meter.std()
    tracker.update(loss.item())
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}", spread)
""",
    "spread of what the host writes through a view": """\
ring = torch.zeros(6)
shown = ring.numpy()
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    shown[i] = loss.item()
    spread = ring.std()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f} {spread:.5f}")
""",
    "norm of a weight by a name of its own": """\
named = dict(model.named_parameters())
weights = [named["0.weight"]]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    size = weights[0].norm()
    optimizer.zero_grad()
    print(f"{loss.item():.5f} {size:.5f}")
""",
    "norm of a weight before the update": """\
head = [p for p in model.parameters()][-1]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    size = head.norm()
    optimizer.step()
    print(f"{loss.item():.5f} {size:.5f}")
""",
    "list that an object has got by a function": """\
import types
losses, stats = [], types.SimpleNamespace()
setattr(stats, "rows", losses)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(stats.rows)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "list that is of a class of its own": """\
import types
seen = types.SimpleNamespace(n=0)
class Counting(list):
    def append(self, value):
        seen.n += 1
losses = Counting()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = seen.n
    loss.backward()
    optimizer.step()
    print(n)
""",
    "list with two names": """\
import types
losses = rows = []
stats = types.SimpleNamespace()
vars(stats)["rows"] = rows
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.append(loss.item())
    n = len(stats.rows)
    loss.backward()
    optimizer.step()
    print(n)
""",
    "generator counts in a global": """\
epoch = 0
def forever():
    global epoch
    while True:
        yield from loader[:3]
        epoch += 1
labeled, unlabeled = iter(loader * 2), forever()
"""
    + _TWO_LOADERS.replace("SHOWN", "epoch"),
    "generator counts in what it gets": """\
class State:
    epoch = 0
def forever(batches, state):
    while True:
        for batch in batches:
            yield batch
        state.epoch += 1
state = State()
labeled = forever(loader, State())
unlabeled = forever(loader[:3], state)
"""
    + _TWO_LOADERS.replace("SHOWN", "state.epoch"),
    "generator counts in a dictionary": """\
progress = {"epoch": 0}
def forever(batches, progress):
    while True:
        yield from batches
        progress["epoch"] += 1
labeled, unlabeled = iter(loader * 2), forever(loader[:3], progress)
"""
    + _TWO_LOADERS.replace("SHOWN", 'progress["epoch"]'),
    "sampler of a loader counts": """\
class Forever(torch.utils.data.Sampler):
    def __init__(self, size):
        self.size, self.epoch = size, 0
    def __iter__(self):
        while True:
            yield from range(self.size)
            self.epoch += 1
sampler = Forever(2)
labeled = iter(loader * 2)
unlabeled = iter(torch.utils.data.DataLoader(loader, batch_size=None, sampler=sampler))
"""
    + _TWO_LOADERS.replace("SHOWN", "sampler.epoch"),
    "iterator of the file counts": """\
class Batches:
    epoch = at = 0
    def __next__(self):
        global epoch
        self.at += 1
        epoch = self.at // 3
        return loader[self.at % 6]
epoch = 0
labeled, unlabeled = iter(loader * 2), Batches()
"""
    + _TWO_LOADERS.replace("SHOWN", "epoch"),
    "str of an object shows the rate": _RATES
    + """\
class Progress:
    def __str__(self):
        return f"rate {optimizer.param_groups[0]['lr']}"
progress = Progress()
"""
    + _SHOWS_RATE.replace("SHOWN", 'print(f"{progress} loss {loss.item()}")'),
    "print of an object shows the rate": _RATES
    + """\
class Progress:
    def __repr__(self):
        return f"rate {optimizer.param_groups[0]['lr']}"
progress = Progress()
"""
    + _SHOWS_RATE.replace("SHOWN", "print(progress, loss.item())"),
    "output shows the rate": _RATES
    + """\
import sys
class Tee:
    def __init__(self, out):
        self.out = out
    def write(self, text):
        self.out.write(text)
        if text.strip():
            self.out.write(f" at {optimizer.param_groups[0]['lr']}")
    def flush(self):
        pass
sys.stdout = Tee(sys.stdout)
"""
    + _SHOWS_RATE.replace("SHOWN", "print(loss.item())")
    + """\
sys.stdout = sys.stdout.out
""",
    "formatter of logging shows the rate": _RATES
    + """\
import logging, sys
class Rates(logging.Formatter):
    def format(self, record):
        return f"{optimizer.param_groups[0]['lr']} {record.getMessage()}"
logger = logging.getLogger("of this loop")
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(Rates())
logger.addHandler(handler)
logger.setLevel("INFO")
"""
    + _SHOWS_RATE.replace("SHOWN", 'logger.info("loss %s", loss.item())')
    + """\
logger.removeHandler(handler)
""",
    "helper calls what counts": _CURRICULUM.replace("METHOD", "advance")
    + """\
def current_noise():
    return 0.5 * curriculum.advance()
"""
    + _DRAWS.replace("CALL", "current_noise()"),
    "method with the name of a pure one counts": _CURRICULUM.replace("METHOD", "get")
    + _DRAWS.replace("CALL", "curriculum.get()"),
    "instance that is called counts": _CURRICULUM.replace("METHOD", "__call__")
    + _DRAWS.replace("CALL", "curriculum()"),
    "bound method counts": _CURRICULUM.replace("METHOD", "advance")
    + """\
draw = curriculum.advance
"""
    + _DRAWS.replace("CALL", "draw()"),
    "lambda counts": _CURRICULUM.replace("METHOD", "advance")
    + """\
draw = lambda: curriculum.advance()
"""
    + _DRAWS.replace("CALL", "draw()"),
    "a list that a backward of the file reads": _BACKWARD,
}
