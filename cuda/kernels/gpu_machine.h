/* The GPU's side of kernel_machine.h. Device addresses are global, so that generic and global ones
 * are the same number. */
#ifndef CUDA_KERNELS_GPU_MACHINE_H
#define CUDA_KERNELS_GPU_MACHINE_H

struct kernel_block {
	unsigned index, count;
};

#define DEVICE       static __device__ __forceinline__
#define DEVICE_OUT   static __device__ __noinline__ /* compiled once a kernel */
#define BLOCK_SHARED __shared__
#define UNROLL       _Pragma("unroll")
#define NO_UNROLL    _Pragma("unroll 1")

/* One block a multiprocessor is enough: 512 threads with 8 vectors of 16 bytes each are 64 KiB in
 * flight, twice what an H200's memory needs. So a thread may have 128 registers. */
#define KERNEL(name)                                                                               \
	extern "C" __global__ void __launch_bounds__(THREADS_OF_##name, 1)                         \
		tutti_##name(const __grid_constant__ struct name##_args args)                      \
	{                                                                                          \
		struct kernel_block block = {blockIdx.x, gridDim.x};                               \
		name##_body(&args, &block);                                                        \
	}

/* A phase's value that each thread keeps for a later phase is x[OF_THREAD(t)] of
 * x[PER_THREAD(threads)]. */
#define PER_THREAD(threads) 1
#define OF_THREAD(t)        0

DEVICE int thread_first(void)
{
	return (int)threadIdx.x;
}

DEVICE int thread_step(void)
{
	return (int)blockDim.x;
}

DEVICE void block_barrier(void)
{
	__syncthreads();
}

/* A barrier: whether any thread of the block says so. */
DEVICE int block_any(int is_so)
{
	return __syncthreads_or(is_so);
}

DEVICE struct vector load_vector(const void *p)
{
	struct vector v;
	asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "l"(p)
		     : "memory");
	return v;
}

DEVICE void store_vector(void *p, struct vector v)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]),
		     "r"(v.w[2]), "r"(v.w[3])
		     : "memory");
}

DEVICE uint64_t load_8(const void *p, int bytes)
{
	uint32_t low = 0, high = 0;
	if (bytes == 8)
		asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
			     : "=r"(low), "=r"(high)
			     : "l"(p)
			     : "memory");
	else if (bytes == 4)
		asm volatile("ld.global.u32 %0, [%1];" : "=r"(low) : "l"(p) : "memory");
	else if (bytes == 2)
		asm volatile("ld.global.u16 %0, [%1];" : "=r"(low) : "l"(p) : "memory");
	else
		asm volatile("ld.global.u8 %0, [%1];" : "=r"(low) : "l"(p) : "memory");
	return low | (uint64_t)high << 32;
}

DEVICE void store_8(void *p, uint64_t bits, int bytes)
{
	uint32_t low = (uint32_t)bits, high = (uint32_t)(bits >> 32);
	if (bytes == 8)
		asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(low), "r"(high)
			     : "memory");
	else if (bytes == 4)
		asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(low) : "memory");
	else if (bytes == 2)
		asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "r"(low) : "memory");
	else
		asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(low) : "memory");
}

DEVICE struct packet load_packet(const void *p)
{
	struct packet packet;
	asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
		     : "=l"(packet.half[0]), "=l"(packet.half[1])
		     : "l"(p)
		     : "memory");
	return packet;
}

DEVICE void store_packet(void *p, struct packet packet)
{
	asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(packet.half[0]),
		     "l"(packet.half[1])
		     : "memory");
}

DEVICE uint64_t load_acquire(const uint64_t *p)
{
	uint64_t value;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
	return value;
}

DEVICE void store_release(uint64_t *p, uint64_t value)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/* For the blocks of this GPU alone. */
DEVICE void store_release_near(uint64_t *p, uint64_t value)
{
	asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

DEVICE uint64_t load_relaxed(const uint64_t *p)
{
	uint64_t value;
	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
	return value;
}

DEVICE void store_relaxed(uint64_t *p, uint64_t value)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/* Returns what was there. Among the blocks of one GPU. */
DEVICE uint64_t exchange_flag(uint64_t *p, uint64_t value)
{
	uint64_t was;
	asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;"
		     : "=l"(was)
		     : "l"(p), "l"(value)
		     : "memory");
	return was;
}

/* Returns what was there. Among the blocks of one GPU; release and acquire, too. */
DEVICE uint64_t add_flag(uint64_t *p, uint64_t value)
{
	uint64_t was;
	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(was)
		     : "l"(p), "l"(value)
		     : "memory");
	return was;
}

DEVICE void fence_system(void)
{
	__threadfence_system();
}

DEVICE void store_release_32(uint32_t *p, uint32_t value)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

/* At multicast addresses: 16 bytes as the sum of all members', accumulated in f32 and rounded once;
 * or stored to all. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_MULTICAST 1
#define MULTICAST_LOAD(name, type)                                                                 \
	DEVICE struct vector multicast_load_##name(const void *p)                                  \
	{                                                                                          \
		struct vector v;                                                                   \
		asm volatile("multimem.ld_reduce.relaxed.sys.global.add." type                     \
			     " {%0, %1, %2, %3}, [%4];"                                            \
			     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])              \
			     : "l"(p)                                                              \
			     : "memory");                                                          \
		return v;                                                                          \
	}

DEVICE void multicast_store(void *p, struct vector v)
{
	asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p),
		     "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
		     : "memory");
}

/* Between accesses to memory at its own address, and at one of multicast. */
DEVICE void multicast_fence(void)
{
	asm volatile("fence.proxy.alias;" ::: "memory");
}
#else
#define HAS_MULTICAST 0
#define MULTICAST_LOAD(name, type)                                                                 \
	DEVICE struct vector multicast_load_##name(const void *p)                                  \
	{                                                                                          \
		return load_vector(p);                                                             \
	}

DEVICE void multicast_store(void *p, struct vector v)
{
	store_vector(p, v);
}

DEVICE void multicast_fence(void)
{
}
#endif
MULTICAST_LOAD(f32, "v4.f32")
MULTICAST_LOAD(f16, "acc::f32.v4.f16x2")
MULTICAST_LOAD(bf16, "acc::f32.v4.bf16x2")

/* Of a wait, between two looks at the abort word, which lies in the host's memory. */
#define TURNS_A_LOOK 64

DEVICE uint64_t time_ns(void)
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

DEVICE void spin_pause(void)
{
}

DEVICE float widen_f16(uint32_t bits)
{
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
	return x;
}

/* x is no NaN, or the canonical one. */
DEVICE uint32_t narrow_f16(float x)
{
	unsigned short bits;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
	return x != x ? 0x7e00 : bits;
}

#endif
