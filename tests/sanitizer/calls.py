"""Statements that call NumPy, for the tests of accesses and of tracked arrays.

They use the arrays ``a`` (4 x 4), ``b`` (4), ``c`` (4 x 4) of floats, ``m`` (4 x 4) of truth values and ``i`` (3) of
indices, and leave a result in ``v``.
"""

READ_EXACTLY = """
v = a + b
v = a[1] + b
v = np.add(a, b)
v = np.add(a[::2], a[1::2])
v = np.add(a, b, where=m, out=np.zeros((4, 4)))
v = np.multiply.outer(b, b)
v = np.add.reduce(a, axis=0)
v = np.add.reduce(a, where=m)
v = np.add.accumulate(b)
v = np.add.reduceat(b, [0, 2])
v = np.matmul(a, c)
v = a @ b
v = -a
v = a ** 2
v = divmod(a, 2)
v = np.modf(a)
v = a[0]; v = v.sum()
v = a[1, 2]
v = a[1][2]
v = a[:, 1] * 2
v = a[m]
v = a[~m]
v = a[i]
v = a[i, i]
v = a[:, i]
v = a[i, 1:3]
v = a[m[0]]
v = a[:, m[0]]
v = a[None, i]
v = a[np.ix_(i, i)]
v = b[i]
v = a[i[1]]; v = v * 1
v = a[np.array(2)]
v = a[np.array(2), 1:]
v = b[-1]
v = a.item(5)
v = a.item(1, 2)
v = a.flat[3]
v = a.flat[1:9:3]
v = float(b[2])
v = float(a[1:2, 1:2].reshape(()))
v = [e for e in b]
v = a.sum()
v = a.sum(axis=1)
v = a.sum(where=m)
v = a.mean(where=m)
v = np.mean(a, axis=0)
v = np.sum(a, where=m)
v = a.T.copy()
v = a.reshape(2, 8) + 0
v = a[:, 1:3].reshape(-1)
v = a.ravel() * 1
v = a.astype('f4')
v = a.flatten()
v = a.tolist()
v = a.tobytes()
v = np.where(m, a, c)
v = np.where(m, a, 0)
v = np.where(m[0], b, c)
v = np.take(a, i)
v = np.take(a, i, axis=1)
v = np.take(a, [-1, 9], axis=0, mode='clip')
v = np.take(a, [5, 6], axis=0, mode='wrap')
v = a.take(i)
v = a.take(i, axis=0)
v = np.take_along_axis(a, i.reshape(1, 3), axis=1)
v = np.take_along_axis(a, i.reshape(3, 1), axis=0)
v = np.take_along_axis(a, i, axis=None)
v = np.compress([True, False, True], a, axis=0)
v = np.compress([True, False, True], a)
v = a.compress([False, True], axis=1)
v = np.extract(m, a)
v = np.trace(a)
v = a.trace(1)
v = np.trace(a, offset=-1)
v = np.linalg.trace(a)
v = np.tril(a)
v = np.triu(a, 1)
v = np.diag(b)
v = np.diag(a) * 2
v = a.diagonal(1) * 2
v = np.concatenate([a, c])
v = np.concatenate([a[:1], c[1:2]])
v = np.stack([b, a[0]])
v = np.dot(a, b)
v = np.outer(b, b)
v = np.einsum('ij,j', a, b)
v = np.einsum('ii->i', a) * 1
v = np.cumsum(b)
v = np.copy(a)
v = np.roll(b, 1)
v = np.diff(b)
v = np.tile(b, 2)
v = np.pad(b, 1)
v = np.split(a, [1])[0] * 1
v = np.full_like(b, b[0])
v = np.full((2, 2), b[1])
v = np.repeat(b, 2)
v = np.meshgrid(b, b)
v = np.fft.fft(b)
v = np.linalg.norm(a)
v = np.broadcast_to(b, (2, 4)) * 1
v = np.array([b, a[0]])
v = np.array(b)
v = np.asarray([b[0], b[2]])
v = np.nditer(b[:2]); v = [float(x) for x in v]
v = [float(e) for _, e in np.ndenumerate(b)]
v = np.vectorize(lambda e: e + 1)(b)
v = np.flip(a)[0] * 1
v = pickle.dumps(b)
v = copy.deepcopy(b)
v = repr(b)
v = a[:, ::-1][0] * 1
v = np.shape(a), a.T.shape, np.reshape(a, -1).strides, np.zeros_like(a).shape, a.view('i8').shape
v = np.r_[b, b[0]]
v = np.c_[b, b]
v = np.ma.sum(np.ma.array(b.copy()))
v = np.random.default_rng(1).permutation(b)
v = np.random.default_rng(1).normal(b)
v = np.random.RandomState(1).permutation(b)
v = np.polyval(b, 2.0)
v = np.interp([0.5], [0.0, 1.0], b[:2])
v = np.unique(b)
v = np.sort(a)
v = np.argsort(b)
v = complex(b[0])
v = sum(b)
v = max(b)
v = b.real + 1
v = np.real(b) + 1
v = np.nan_to_num(b)
v = np.average(b, weights=a[0])
v = np.lib.stride_tricks.sliding_window_view(b, 2).sum(axis=1)
v = np.lib.stride_tricks.as_strided(b, (2,), (16,)) * 1
v = math.fsum(b)
v = [x * 2 for x in a[:, 0]]
v = dict(zip('xy', b))
""".strip().split("\n")
"""Statements that only read. Every element that they are to read changes the result."""

READ_MORE = """
v = np.argmax(b)
v = b.max()
v = a.any()
v = np.clip(b, 0, 1)
v = np.round(b)
v = np.searchsorted(np.arange(4.0), b)
v = np.median(b)
v = b > 0
v = np.choose([0, 1, 0, 1], [b, a[0]])
v = np.select([b > 0.5], [a[0]], 0)
v = np.isin(0.5, b)
v = np.histogram(b, [0, 1, 2])
v = 0.25 in b
np.nan_to_num(b * np.nan, copy=False)
v = np.isclose(b, 1)
v = np.allclose(a, 1)
v = np.array_equal(b, b + 0)
v = np.percentile(b, 50)
v = np.ptp(b)
v = np.random.default_rng(1).choice(b, 2)
v = f'{b[0]:.1f}'
""".strip().split("\n")
"""Statements that read elements which need not change the result."""

WRITE = """
a[...] = 5.0
a[1] = b
a[:, 1] = 7.0
a[1:3, ::2] = 8.0
a[m] = 3.0
a[m] = b[0]
a[i] = 4.0
a[i, i] = b[1]
a[:, i] = 2.0
a[i, 1:3] = 2.0
a[m[0], 1] = 6.0
b[-1] = 9.0
b[...] = a[0]
a += c
a *= 2.0
a[0] += b
a[:, 1:2] -= 1.0
a[m] += 1.0
a[i] *= 3.0
np.add(a, c, out=a)
np.add(a[0], b, out=a[1])
np.add(a, c, where=m, out=a)
np.add(a, c, a)
np.divmod(b, 2.0, out=(a[0], a[1]))
np.add.reduce(c, axis=0, out=b)
np.add.reduce(c, 0, None, b)
np.add.accumulate(c[0], out=b)
np.add.at(b, i, 1.0)
np.add.at(a, (i, i), 2.0)
np.negative.at(b, [0, 2])
np.matmul(a, b, out=c[0])
np.copyto(a, c)
np.copyto(a, b)
np.copyto(a, c, where=m)
np.copyto(a, 3.0, where=m[0])
np.put(a, i, [1.0, 2.0, 3.0])
np.put(a, [17, 18], 9.0, mode='wrap')
np.put(a, [99], 9.0, mode='clip')
a.put([1, -1], [4.0, 5.0])
np.putmask(a, m, 7.0)
np.place(a, m, [1.0, 2.0])
np.put_along_axis(a, i.reshape(1, 3), 5.0, axis=1)
np.put_along_axis(a, i.reshape(3, 1), 5.0, axis=0)
np.put_along_axis(a, i, 5.0, axis=None)
np.fill_diagonal(a, 5.0)
np.fill_diagonal(a[:, :2], 5.0)
np.fill_diagonal(a[:, :2], 5.0, wrap=True)
np.fill_diagonal(a.reshape(2, 2, 4)[:, :, :2], 5.0)
a.fill(4.0)
a[1].fill(4.0)
a.sort()
a[0].sort()
b.partition(2)
a.flat = 3.0
a.flat[2] = 8.0
a.flat[1::3] = 9.0
a.real = 6.0
a.T[0] = 5.0
a.reshape(-1)[3:5] = 5.0
a.view('i8')[0] = 7
b.setfield(1.5, 'f8')
b.byteswap(inplace=True)
np.sum(a, axis=0, out=b)
np.sum(a, 0, None, b)
a.sum(axis=0, out=b)
a.sum(0, None, b)
np.mean(a, axis=0, out=b)
a.cumsum(axis=1, out=c)
np.cumsum(a, 1, None, c)
np.clip(a, 0.2, 0.4, out=c)
a.clip(0.2, 0.4, a)
np.round(a, 1, c)
v = np.dot(a, c, np.zeros((4, 4)))
np.concatenate([b, b], out=a.reshape(-1)[:8])
np.stack([b, b], out=a[:2])
np.take(b, i, out=a[0, :3])
b.take(i, None, a[0, :3])
np.compress([True, True], a, axis=0, out=c[:2])
np.where(m, a, c).sum(axis=0, out=b)
np.median(b, overwrite_input=True)
np.percentile(b, 50, overwrite_input=True)
np.median(a, axis=0, out=b)
np.einsum('ij->j', a, out=b)
v = np.fft.fft(b, out=np.zeros(4, complex))
np.random.default_rng(1).shuffle(b)
np.random.default_rng(1).random(out=b)
np.random.default_rng(1).standard_normal(4, 'f8', b)
np.random.default_rng(1).permuted(a, axis=1, out=c)
np.random.default_rng(1).permuted(b, out=b)
np.random.RandomState(1).shuffle(b)
np.random.shuffle(b)
np.trace(a, out=b[0:1].reshape(()))
np.outer(b, b, out=c)
np.choose([0, 1, 0, 1], [b, b], out=a[0])
np.linalg.multi_dot([a, c], out=c)
np.maximum.reduce(a, axis=1, out=b)
operator.setitem(a, (0, 1), 3.0)
operator.iadd(b, 1.0)
""".strip().split("\n")
"""Statements that write elements of the arrays, and of no other."""
