/* The CPU's side of kernel_machine.h. Data are moved by plain accesses, so that ThreadSanitizer
 * sees where a flag is missing. */
#ifndef CUDA_KERNELS_CPU_MACHINE_H
#define CUDA_KERNELS_CPU_MACHINE_H

#include "cuda/kernels/block.h"
#include "cuda/kernels/give_way.h"
#include "core/memory/small_float.h"

#include <stdatomic.h>
#include <string.h>

#define DEVICE       __attribute__((unused)) static inline
#define DEVICE_OUT   __attribute__((unused)) static
#define BLOCK_SHARED
#define UNROLL
#define NO_UNROLL

#define KERNEL(name)                                                                               \
	void name##_block(const struct name##_args *args, struct kernel_block *block)              \
	{                                                                                          \
		name##_body(args, block);                                                          \
	}

#define PER_THREAD(threads) threads
#define OF_THREAD(t)        t

DEVICE int thread_first(void)
{
	return 0;
}

DEVICE int thread_step(void)
{
	return 1;
}

DEVICE void block_barrier(void)
{
}

/* All threads' turns have said so in one variable. */
DEVICE int block_any(int is_so)
{
	return is_so;
}

DEVICE struct vector load_vector(const void *p)
{
	struct vector v;
	memcpy(&v, kernel_reach(p, sizeof v, 0), sizeof v);
	return v;
}

DEVICE void store_vector(void *p, struct vector v)
{
	memcpy(kernel_reach(p, sizeof v, 1), &v, sizeof v);
}

DEVICE uint64_t load_8(const void *p, int bytes)
{
	uint64_t bits = 0;
	memcpy(&bits, kernel_reach(p, (size_t)bytes, 0), (size_t)bytes);
	return bits;
}

DEVICE void store_8(void *p, uint64_t bits, int bytes)
{
	memcpy(kernel_reach(p, (size_t)bytes, 1), &bits, (size_t)bytes);
}

/* A packet's halves are apart, as PTX allows. */
DEVICE _Atomic uint64_t *half_of(const void *p, int i, int writes)
{
	return kernel_reach((const char *)p + i * 8, 8, writes);
}

DEVICE struct packet load_packet(const void *p)
{
	struct packet packet;
	packet.half[1] = atomic_load_explicit(half_of(p, 1, 0), memory_order_relaxed);
	packet.half[0] = atomic_load_explicit(half_of(p, 0, 0), memory_order_relaxed);
	return packet;
}

DEVICE void store_packet(void *p, struct packet packet)
{
	atomic_store_explicit(half_of(p, 1, 1), packet.half[1], memory_order_relaxed);
	atomic_store_explicit(half_of(p, 0, 1), packet.half[0], memory_order_relaxed);
}

DEVICE uint64_t load_acquire(const uint64_t *p)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 0);
	return atomic_load_explicit(word, memory_order_acquire);
}

DEVICE void store_release(uint64_t *p, uint64_t value)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 1);
	atomic_store_explicit(word, value, memory_order_release);
}

DEVICE void store_release_near(uint64_t *p, uint64_t value)
{
	store_release(p, value);
}

DEVICE uint64_t load_relaxed(const uint64_t *p)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 0);
	return atomic_load_explicit(word, memory_order_relaxed);
}

DEVICE void store_relaxed(uint64_t *p, uint64_t value)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 1);
	atomic_store_explicit(word, value, memory_order_relaxed);
}

DEVICE uint64_t exchange_flag(uint64_t *p, uint64_t value)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 1);
	return atomic_exchange_explicit(word, value, memory_order_relaxed);
}

DEVICE uint64_t add_flag(uint64_t *p, uint64_t value)
{
	_Atomic uint64_t *word = kernel_reach(p, sizeof *p, 1);
	return atomic_fetch_add_explicit(word, value, memory_order_acq_rel);
}

/* Not atomic_thread_fence, which ThreadSanitizer does not know. */
DEVICE void fence_system(void)
{
	__atomic_fetch_add(&(int){0}, 0, __ATOMIC_SEQ_CST);
}

DEVICE void store_release_32(uint32_t *p, uint32_t value)
{
	_Atomic uint32_t *word = kernel_reach(p, sizeof *p, 1);
	atomic_store_explicit(word, value, memory_order_release);
}

#define HAS_MULTICAST 1

DEVICE struct vector multicast_load_f32(const void *p)
{
	struct vector v;
	kernel_multicast_sum(p, MULTICAST_F32, &v);
	return v;
}

DEVICE struct vector multicast_load_f16(const void *p)
{
	struct vector v;
	kernel_multicast_sum(p, MULTICAST_F16, &v);
	return v;
}

DEVICE struct vector multicast_load_bf16(const void *p)
{
	struct vector v;
	kernel_multicast_sum(p, MULTICAST_BF16, &v);
	return v;
}

DEVICE void multicast_store(void *p, struct vector v)
{
	kernel_multicast_store(p, &v);
}

DEVICE void multicast_fence(void)
{
}

/* Few: the threads of a block wait one after another here, each for as many turns. */
#define TURNS_A_LOOK 2

DEVICE uint64_t time_ns(void)
{
	return give_way_now();
}

DEVICE void spin_pause(void)
{
	give_way();
}

DEVICE float widen_f16(uint32_t bits)
{
	return small_widen(bits, SMALL_F16);
}

DEVICE uint32_t narrow_f16(float x)
{
	return small_narrow(x, SMALL_F16);
}

#endif
