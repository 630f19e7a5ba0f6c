"""Statements of NumPy for generated programs; they use the arrays ``a`` and ``b``, and leave a result in ``v``.

``{s}`` stands for a shape, ``{n}`` for a number and ``{d}`` for a dtype.
"""

STATEMENTS = """
v = np.zeros({s})
v = np.arange({n}.)
v = np.ones({s}, {d})
v = np.array([1, 2, 3], {d})
v = np.random.RandomState({n}).rand(*{s})
v = np.random.default_rng({n}).integers(0, 9, size={s})
v = np.random.default_rng({n}).normal(a if np.ndim(a) == 0 else 1.0, size={s})
v = a + b
v = a * 2 - 1
v = a ** 2
v = a // 2
v = a @ b
v = np.add(a, b, out=a)
v = np.add(a, b, out=a, where=a > 1)
v = np.multiply.outer(a, [1, 2])
v = np.add.reduce(a, axis=0)
v = np.add.accumulate(a)
np.add.at(a, 0, 1)
a += b
a *= 2
a -= a
a[0] = 1
a[...] = 2
a[a > 1] = 0
a[[0, -1]] = 5
v = a[0]
v = a[1:]
v = a[::-1]
v = a[..., None]
v = a[a > 0]
v = a[[0]]
v = a[np.array([0, 0])]
v = a.T
v = a.reshape(-1)
v = a.ravel()
v = a.flatten()
v = a.copy()
v = a.astype({d})
v = a.astype(float, copy=False)
v = a.sum()
v = a.sum(axis=0)
v = a.sum(axis=0, keepdims=True)
v = a.mean()
v = np.mean(a, axis=-1)
v = a.max(initial=0)
v = np.sum(a, where=a > 1)
v = a.std()
v = np.median(a)
v = a.argmax()
v = a.argsort()
a.sort()
a.fill(3)
v = a.tolist()
v = a.item(0)
v = float(a.sum())
v = int(a[0].sum())
v = bool(a.any())
v = np.concatenate([a, b])
v = np.stack([a, a])
v = np.where(a > 1, a, b)
v = np.where(a > 1)
v = np.split(a, 1)
v = np.dot(a, b)
v = np.outer(a, b)
v = np.einsum('...i->...', a)
v = np.einsum('i...->i...', a)
v = np.tensordot(a, b, 0)
v = np.sort(a)
v = np.unique(a)
v = np.unique(a, return_counts=True)
v = np.clip(a, 0, 2)
v = np.linspace(0, 1, {n})
v = np.meshgrid(a.ravel()[:3], [1, 2])
v = np.fft.fft(a)
v = np.linalg.norm(a)
v = np.linalg.svd(np.atleast_2d(a))
v = np.broadcast_to(a, (2, *a.shape))
v = np.broadcast_arrays(a, 1)
v = np.diag(a)
v = np.trace(np.atleast_2d(a))
v = np.cumsum(a)
v = np.diff(a)
v = np.roll(a, 1)
v = np.flip(a)
v = np.pad(a, 1)
v = np.tile(a, 2)
v = np.repeat(a, 2)
v = np.nan_to_num(a, copy=False)
v = np.isclose(a, b)
v = np.allclose(a, b)
v = np.array_equal(a, b)
v = np.take(a, [0, 0])
v = np.compress([True, False], a, axis=0)
v = np.put(a, [0], 7)
v = np.copyto(a, b, casting='unsafe')
v = np.putmask(a, a > 2, 0)
v = np.full_like(a, 3)
v = np.zeros_like(a)
v = np.empty_like(a).shape
v = (lambda q: np.asarray(q) is q)(np.arange(3))
v = np.searchsorted(np.sort(a.ravel()), 1)
v = np.apply_along_axis(lambda r: r.sum(), 0, a)
v = np.vectorize(lambda e: e + 1)(a)
v = np.frompyfunc(lambda e: e + 1, 1, 1)(a)
v = [e for e in a]
v = sum(a.ravel())
v = list(a.flat)
v = a.flat[0]
a.flat[::2] = 9
a.flat = 1
v = a.flat[1:3]
v = [float(x) for x in np.nditer(a)] if a.dtype.kind in 'fi' else 0
v = [(i, float(e.real)) for i, e in np.ndenumerate(a)]
v = pickle.dumps(a)
v = pickle.loads(pickle.dumps(a))
v = copy.copy(a)
v = copy.deepcopy(a)
v = copy.deepcopy([a, a])
v = np.ma.array(a, mask=a > 1)
v = np.ma.masked_greater(a, 1).sum()
v = np.ma.array(a).filled(0)
v = np.poly1d(a.ravel()[:3])
v = np.polyfit(np.arange(4.), np.arange(4.) ** 2, 1).round(6)
v = np.matrix(np.atleast_2d(a))
v = np.rec.fromarrays([a.ravel(), a.ravel()])
v = np.polynomial.Polynomial([1, 2])(a)
v = save(np, a)
v = np.arange(3).T.base is None
v = (a + 1).base is None
v = isinstance(a, np.ndarray)
v = a.__class__
v = repr(a), str(a), f'{{a}}'
v = format(a.sum(), '.2f')
v = '%s' % a
v = a == b
v = a != 1
v = a < b
v = 1 in a
v = np.array([a, a])
v = np.array([a.sum(), 1])
v = np.r_[a.ravel(), 1]
v = np.c_[a.ravel(), a.ravel()]
v = np.mgrid[0:2, 0:3]
v = np.ogrid[0:2]
v = hasattr(a, 'foo')
a.foo = 1
v = a.shape
a.shape = (-1,)
v = a.real
v = a.imag
a.real = 4
v = np.real(a)
v = a.view(np.ndarray)
v = a.dtype
v = divmod(a, 2)
v = abs(a)
v = -a
v = ~(a > 1)
v = np.modf(a)
v = np.frexp(a)
v = round(a.sum(), 1)
v = a.round(1)
v = np.zeros(3, [('x', 'f8'), ('y', 'i4')])
v = np.array([(1, 2.0)], dtype=[('p', int), ('q', float)])['q']
v = np.lib.stride_tricks.sliding_window_view(a, 2, axis=0)
v = np.lib.stride_tricks.as_strided(a.ravel()[:0], (0,))
v = np.char.add(np.array(['a', 'b']), 'c')
v = np.strings.upper(np.array(['a', 'b']))
v = np.array(['a', 'b'], object) + 'x'
v = np.array([[1, 'a'], [2, 'b']], object)
v = np.histogram(a)
v = np.percentile(a, 50)
v = np.ix_([0, 1], [0])
v = np.triu(np.atleast_2d(a))
v = np.select([a > 1, a <= 1], [a, 0])
v = np.piecewise(a, [a > 1], [lambda x: x + 1, 0])
v = np.bincount(np.array([1, 1, 2]))
v = np.packbits(np.array([1, 0, 1], 'u1'))
v = np.insert(a, 0, 1)
v = np.delete(a, 0)
v = np.append(a, 1)
v = np.average(a)
v = np.cov(np.atleast_2d(a))
v = np.gradient(a)
v = np.interp(0.5, [0, 1], [1, 2])
v = np.convolve(a, [1, 1])
v = np.nonzero(a)
v = np.argwhere(a)
v = np.count_nonzero(a)
v = np.indices((2, 2))
v = np.fromfunction(lambda i, j: i + j, (2, 2))
v = np.fromiter((i for i in range(3)), float)
v = np.frombuffer(b'12345678')
v = np.loadtxt(io.StringIO('1 2'))
v = np.squeeze(a[None])
v = np.moveaxis(a, 0, -1)
v = np.swapaxes(a, 0, -1)
v = np.expand_dims(a, 0)
v = np.rot90(np.atleast_2d(a))
v = np.result_type(a, 1)
v = np.can_cast(a.dtype, float)
v = np.shares_memory(a, b)
v = np.random.permutation(np.random.RandomState(1).rand(3)).shape
np.random.seed({n})
v = np.random.rand(2)
v = np.random.randint(0, 9)
v = np.random.choice(a.ravel())
np.random.shuffle(a)
np.random.default_rng(3).shuffle(a)
v = np.random.default_rng(3).choice(a.ravel(), 2)
v = np.random.default_rng(3).permuted(a)
v = np.random.default_rng(3).random(3)
v = pickle.loads(pickle.dumps(np.random.default_rng(3))).random()
v = np.random.default_rng(np.random.default_rng(5)).random()
v = functools.reduce(np.add, [a, a, a])
v = operator.add(a, b)
v = math.sqrt(abs(a.sum()))
v = max(a.ravel())
v = a.ravel()[0] if len(a) else None
v = set(a.ravel().tolist())
v = sorted(a.ravel())
v = dict(zip(a.ravel()[:2], [1, 2]))
v = [1, 2, 3][int(a.size > 0)]
v = np.emath.sqrt(-1)
v = np.setdiff1d(a, b)
v = np.isin(a, b)
v = np.kron(a, [1, 2])
v = hash(a)
v = a and b
v = a.nofield
v = np.nosuch
v = a + 'x'
v = a[99]
v = a.reshape(7, 13)
v = np.linalg.inv(a)
v = a.sum(axis=9)
v = len(a), a.ndim, a.size, a.nbytes, a.itemsize, a.strides
a = a.T
b = a
v = memoryview(a).nbytes
v = a.byteswap() if a.dtype.kind in 'fi' else 0
v = np.trim_zeros(a)
v = a.nonzero()
v = a.cumsum(out=a)
v = a.clip(0, 1, out=a) is a
v = np.sum(a, out=np.zeros(()))
v = np.sum(a, axis=0, out=b) is b
v = np.maximum.reduce(a)
v = np.minimum(a, b)
v = a.dot(a)
v = a.trace()
v = a.diagonal()
v = a.swapaxes(0, -1)
v = a.squeeze()
v = a.repeat(2)
v = a.take([0])
v = a.choose([1, 2])
v = a.searchsorted(1)
v = a.partition(0)
v = np.partition(a, 0)
v = a.argpartition(0)
v = np.array_split(a, 2)
v = np.vstack([a, a])
v = np.block([[a], [a]])
v = np.lexsort((a.ravel(), a.ravel())) if a.dtype != object else 0
v = np.ravel_multi_index(([0], [1]), (2, 2))
v = np.unravel_index([1], (2, 2))
v = np.putmask
v = np.add.nin
v = np.float32(a)
v = np.int64(a.ravel()[0])
v = complex(a.ravel()[0])
v = {{'x': a}}['x'] is a
v = np.array2string(a, precision=2)
v = np.savetxt(sys.stdout, np.atleast_2d(a).real)
v = a.__array_interface__['shape']
v = a.ctypes.data == a.__array_interface__['data'][0]
v = np.from_dlpack(a).shape
v = a.__reduce__()[1]
v = isinstance(np.add, np.ufunc), type(np.float64(1)), callable(np.sum)
v = np.sum.__name__, np.add.__name__
v = np.linalg.eigvalsh(np.atleast_2d(a) @ np.atleast_2d(a).T).round(6)
v = np.datetime64('2020-01-01') + np.arange(3)
v = np.busday_count('2020-01-01', '2020-02-01')
v = np.array(1.5)
v = a[()]
v = np.tri(3)
v = np.eye(2)[::-1]
v = np.einsum('ij,jk', np.eye(2), np.eye(2))
v = np.ndarray((2,), buffer=np.arange(2.))
v = np.fill_diagonal(np.eye(3), 5)
v = np.put_along_axis(a, np.zeros((1,) * a.ndim, int), 4, axis=0)
v = np.take_along_axis(a, np.zeros((1,) * a.ndim, int), axis=0)
v = np.nanmean(a)
v = np.quantile(a, 0.3, axis=0)
v = np.require(a, requirements='F').flags.f_contiguous
v = np.trapezoid(a)
v = np.ptp(a)
v = a.conj() is a
v = np.lib.array_utils.byte_bounds(a)[1] - np.lib.array_utils.byte_bounds(a)[0]
v = a.tobytes() if a.dtype != object else 0
v = bytes(memoryview(np.ascontiguousarray(a))) if a.dtype != object else 0
v = (lambda q: np.atleast_1d(q) is q)(np.ones(2))
v = (lambda q: np.array(q, copy=False) is q)(a + 1) if a.ndim else 0
v = type(a + a) is np.ndarray
v = (a + a).flags
v = np.zeros(3).base is None, np.zeros(3).flags.owndata
v = a[np.array([0, 0])].flags.owndata
""".strip().split("\n")
