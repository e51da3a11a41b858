/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim_shared.h - shared memory that notes its accesses; atomics; copies
 *
 * Every element has a shadow: its last writer, its last readers, and the times.
 * (In dynamic shared memory it is every granule of the smallest element that the
 * kernel declares.)  Time counts barriers.  An earlier access of a thread is
 * ordered before the present access of another, if a barrier of the block came
 * since, or if both are of one warp and a __syncwarp() came since.  Two accesses
 * by two threads, of which one writes, are a race if they are not ordered,
 * whatever the order that they ran in.  An element that was not written since the
 * block began cannot be read.
 *
 * An array is indexed by objects that know the line: a[i] is a proxy, which
 * reads when it becomes a number and writes when it is assigned to.  An array
 * handed to a function is of type SHARED_PTR(type), and so is array + offset.
 */
#ifndef TESTS_STANDIN_SHIM_SHARED_H
#define TESTS_STANDIN_SHIM_SHARED_H

/* In @wr_by instead of a thread: atomics of one warp (plus its number), of many. */
#define SHIM_ATOMIC	0x8000u
#define SHIM_ATOMIC_ALL	0xffffu

enum {
	SHIM_ONE,		/* thread rd_by alone */
	SHIM_SOME,		/* some threads of its warp */
	SHIM_MANY,		/* threads of several warps */
};

/* The last write and the last reads of one element; @pending: being copied. */
struct shim_shadow {
	u32 wr_at;
	u32 rd_at;
	u16 wr_by;
	u16 rd_by;
	u8 rd_who;
	u8 pending;
	u16 pending_by;
};

/* An index, and the line that uses it. */
struct shim_index {
	s64 i;
	struct shim_where at;

	template <typename I>
	shim_index(const I &n, SHIM_HERE) : i((s64)n), at{file, line}
	{
	}
};

/* @nr elements of @size bytes at @data; granules of 1 << *gran bytes. */
struct shim_span {
	u8 *data;
	struct shim_shadow *shadow;
	u32 nr;
	u32 size;
	const u32 *gran;
	const char *name;
	s64 base;		/* index of the first in the whole array */
};

extern "C" {
/* Elements @i to @i + @nr: check, and note the access. */
void shim_read(const struct shim_span *s, s64 i, u32 nr, struct shim_where at);
void shim_write(const struct shim_span *s, s64 i, u32 nr, struct shim_where at);
void shim_atomic(const struct shim_span *s, s64 i, struct shim_where at);
/* A read by every lane of the warp. */
void shim_read_warp(const struct shim_span *s, s64 i, u32 nr,
		    struct shim_where at);
/* An access of 16 bytes must be aligned. */
void shim_aligned(const void *p, const char *what, struct shim_where at);
void shim_copy_async(const struct shim_span *s, s64 i, const void *from,
		     bool there, struct shim_where at);
void shim_copy_commit(void);
void shim_copy_wait(u32 left);
/* All of the block's dynamic shared memory, in elements of @size. */
struct shim_span shim_dynamic(const char *name, u32 size);
/* The kernel that runs has an array of @nr elements. */
void shim_static(struct shim_shadow *shadow, u32 nr, u32 bytes);

extern const u32 shim_gran[9];
}

/* The usual case, without a call. */
DEVICE bool shim_plain(const struct shim_span &s, s64 i, struct shim_shadow **e)
{
	if (!SHIM_LIKELY((u64)i < s.nr && s.size == 1u << *s.gran))
		return false;
	*e = &s.shadow[i];
	return SHIM_LIKELY((*e)->wr_at >= shim_now.born && !(*e)->pending);
}

DEVICE void shim_read1(const struct shim_span &s, s64 i, struct shim_where at)
{
	struct shim_shadow *e;

	if (shim_plain(s, i, &e) && (e->wr_at < shim_now.epoch ||
				     e->wr_by == shim_now.me) &&
	    e->rd_at >= shim_now.epoch &&
	    (e->rd_who == SHIM_MANY ||
	     (e->rd_who == SHIM_ONE && e->rd_by == shim_now.me)))
		e->rd_at = shim_now.clock;
	else
		shim_read(&s, i, 1, at);
}

DEVICE void shim_write1(const struct shim_span &s, s64 i, struct shim_where at)
{
	struct shim_shadow *e;

	if (shim_plain(s, i, &e) && e->rd_at < shim_now.epoch &&
	    (e->wr_at < shim_now.epoch || e->wr_by == shim_now.me)) {
		e->wr_at = shim_now.clock;
		e->wr_by = (u16)shim_now.me;
	} else {
		shim_write(&s, i, 1, at);
	}
}

/* The address of an element: for atomics alone. */
template <typename T>
struct shim_addr {
	struct shim_span s;
	s64 i;
	struct shim_where at;
};

/* An element; the use of the object decides between read and write. */
template <typename T>
struct shim_ref {
	struct shim_span s;
	s64 i;
	struct shim_where at;

	operator T() const
	{
		shim_read1(s, i, at);
		return ((const T *)s.data)[i];
	}

	T operator=(T v) const
	{
		shim_write1(s, i, at);
		((T *)s.data)[i] = v;
		return v;
	}

	T operator=(const shim_ref &o) const
	{
		return *this = (T)o;
	}

	T operator+=(T v) const { return *this = (T)((T)*this + v); }
	T operator-=(T v) const { return *this = (T)((T)*this - v); }
	T operator*=(T v) const { return *this = (T)((T)*this * v); }
	T operator|=(T v) const { return *this = (T)((T)*this | v); }
	T operator&=(T v) const { return *this = (T)((T)*this & v); }
	T operator^=(T v) const { return *this = (T)((T)*this ^ v); }
	T operator++() const { return *this = (T)((T)*this + 1); }

	shim_addr<T> operator&() const
	{
		return shim_addr<T>{s, i, at};
	}
};

/* Elements of shared memory; SHARED_PTR(type) is this. */
template <typename T>
struct shim_ptr {
	struct shim_span s;

	shim_ref<T> operator[](const shim_index &x) const
	{
		return shim_ref<T>{s, x.i, x.at};
	}

	shim_ptr<T> operator+(const shim_index &x) const
	{
		shim_ptr<T> p = *this;
		const u32 shift = *s.gran;

		if ((u64)x.i > s.nr)
			shim_die(x.at, "%s + %lld is outside of its %u elements",
				 s.name, (long long)x.i, s.nr);
		p.s.data += x.i * sizeof(T);
		p.s.shadow += x.i * (s64)sizeof(T) >> shift;
		p.s.nr -= (u32)x.i;
		p.s.base += x.i;
		return p;
	}
};

template <typename T, u32 N>
struct shim_array {
	alignas(16) T data[N];
	struct shim_shadow shadow[N];
	struct shim_kernel *of;

	static constexpr u32 log2(u32 n)
	{
		return n > 1 ? 1 + log2(n / 2) : 0;
	}

	shim_ptr<T> ptr(const char *name)
	{
		static_assert(!(sizeof(T) & (sizeof(T) - 1)), "powers of two");
		if (of != shim_now.kernel) {
			of = shim_now.kernel;
			shim_static(shadow, N, sizeof(data));
		}
		return shim_ptr<T>{{(u8 *)data, shadow, N, sizeof(T),
				    &shim_gran[log2(sizeof(T))], name, 0}};
	}
};

#define SHARED_PTR(type)	shim_ptr<type>
#define SHARED(type, name, n)						\
	static struct shim_array<type, (n)> shim_mem_##name;		\
	const shim_ptr<type> name = shim_mem_##name.ptr(#name)
#define DYN_SHARED(type, name)						\
	const shim_ptr<type> name = { shim_dynamic(#name, sizeof(type)) }

/* ---- 16 bytes ---- */

struct alignas(16) quad {
	u32 w[4];
};

template <typename T>
DEVICE quad sh_load16(const shim_ptr<T> &p, const shim_index &x)
{
	quad q;

	shim_read(&p.s, x.i, 16 / sizeof(T), x.at);
	shim_aligned((T *)p.s.data + x.i, p.s.name, x.at);
	memcpy(&q, (T *)p.s.data + x.i, sizeof(q));
	return q;
}

template <typename T>
DEVICE void sh_store16(const shim_ptr<T> &p, const shim_index &x, const quad &q)
{
	shim_write(&p.s, x.i, 16 / sizeof(T), x.at);
	shim_aligned((T *)p.s.data + x.i, p.s.name, x.at);
	memcpy((T *)p.s.data + x.i, &q, sizeof(q));
}

DEVICE quad gl_load16(const void *p, SHIM_HERE)
{
	shim_aligned(p, "global memory", shim_where{file, line});
	return *(const quad *)p;
}

DEVICE quad gl_stream16(const void *p, SHIM_HERE)
{
	shim_aligned(p, "global memory", shim_where{file, line});
	return *(const quad *)p;
}

DEVICE void gl_store16(void *p, const quad &q, SHIM_HERE)
{
	shim_aligned(p, "global memory", shim_where{file, line});
	*(quad *)p = q;
}

/* ---- copies beside the caller ---- */

template <typename T>
DEVICE void copy_async16(const shim_ptr<T> &p, const shim_index &x,
			 const void *from, bool there)
{
	shim_copy_async(&p.s, x.i, from, there, x.at);
}

DEVICE void copy_commit(void)
{
	shim_copy_commit();
}

template <int N>
DEVICE void copy_wait(void)
{
	static_assert(N >= 0, "groups");
	shim_copy_wait(N);
}

/* ---- matrices ---- */

DEVICE void shim_mat(enum shim_kind kind, u32 (&r)[4], const shim_ptr<u16> &p,
		     const shim_index &x)
{
	struct shim_give g = {};

	shim_read_warp(&p.s, x.i, 8, x.at);
	shim_aligned((const u16 *)p.s.data + x.i, p.s.name, x.at);
	g.a = (const u16 *)p.s.data + x.i;
	g.d = r;
	shim_warp(kind, 0xffffffffu, &g, x.at);
}

DEVICE void mat_load4(u32 (&r)[4], const shim_ptr<u16> &p, const shim_index &x)
{
	shim_mat(SHIM_MAT, r, p, x);
}

DEVICE void mat_load4_trans(u32 (&r)[4], const shim_ptr<u16> &p,
			    const shim_index &x)
{
	shim_mat(SHIM_MAT_TRANS, r, p, x);
}

DEVICE void shim_mma(enum shim_kind kind, float (&d)[4], const u32 (&a)[4],
		     const u32 (&b)[2], struct shim_where at)
{
	struct shim_give g = {};

	g.a = a;
	g.b = b;
	g.d = d;
	shim_warp(kind, 0xffffffffu, &g, at);
}

DEVICE void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
		     SHIM_HERE)
{
	shim_mma(SHIM_MMA_BF16, d, a, b, shim_where{file, line});
}

DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
		    SHIM_HERE)
{
	shim_mma(SHIM_MMA_F16, d, a, b, shim_where{file, line});
}

/* ---- atomics: one thread runs, so plain code is one ---- */

template <typename T>
struct shim_same {
	typedef T type;
};

template <typename T>
DEVICE T *shim_at(const shim_addr<T> &p)
{
	shim_atomic(&p.s, p.i, p.at);
	return (T *)p.s.data + p.i;
}

template <typename T>
DEVICE T *shim_at(T *p)
{
	return p;
}

/* For elements of shared memory and for addresses of global memory. */
#define SHIM_ATOMIC_OP(name, result)					\
	template <typename T>						\
	DEVICE T name(T *p, typename shim_same<T>::type v)		\
	{								\
		T *const a = shim_at(p);				\
		const T old = *a;					\
									\
		*a = (result);						\
		return old;						\
	}								\
	template <typename T>						\
	DEVICE T name(const shim_addr<T> &p,				\
		      typename shim_same<T>::type v)			\
	{								\
		return name(shim_at(p), v);				\
	}
SHIM_ATOMIC_OP(atomicAdd, old + v)
SHIM_ATOMIC_OP(atomicSub, old - v)
SHIM_ATOMIC_OP(atomicMax, old > v ? old : v)
SHIM_ATOMIC_OP(atomicMin, old < v ? old : v)
SHIM_ATOMIC_OP(atomicExch, v)
SHIM_ATOMIC_OP(atomicOr, old | v)
SHIM_ATOMIC_OP(atomicAnd, old & v)
SHIM_ATOMIC_OP(atomicInc, old >= v ? 0 : old + 1)

template <typename T>
DEVICE T atomicCAS(T *p, typename shim_same<T>::type was,
		   typename shim_same<T>::type v)
{
	const T old = *p;

	if (old == was)
		*p = v;
	return old;
}

template <typename T>
DEVICE T atomicCAS(const shim_addr<T> &p, typename shim_same<T>::type was,
		   typename shim_same<T>::type v)
{
	return atomicCAS(shim_at(p), was, v);
}

template <typename T>
DEVICE T __ldg(const T *p)
{
	return *p;
}

#endif /* TESTS_STANDIN_SHIM_SHARED_H */
