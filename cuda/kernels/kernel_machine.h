/* The parts that a kernel's body is made of: PTX on a GPU, C11 on a CPU.
 *
 * A body is a sequence of phases. A phase is
 *     for (int t = thread_first(); t < THREADS; t += thread_step())
 * which is one turn on a GPU and all turns on a CPU; a thread's variables end with the phase, but
 * for those in BLOCK_SHARED memory, those that only one thread sets, and those of PER_THREAD.
 * block_barrier() lies between a phase and one that reads what other threads have written; on a CPU
 * a turn may not wait for a later turn of its own block.
 *
 * Ordinary loads and stores are weak. A flag that is stored with release, after block_barrier(),
 * publishes what all threads of the block have stored before; a flag that is loaded with acquire,
 * before block_barrier(), makes that visible to all threads of the block that loads. Both are at
 * system scope, so it holds between GPUs, too. No load goes through the read-only cache
 * (ld.global.nc), which is not coherent with peers' stores.
 *
 * PTX promises that one scalar access of up to 64 bits is not torn, and that a vector access is a
 * set of scalar ones in any order. So a packet is two words of 64 bits, each with a flag of its
 * own, and one instruction moves both. */
#ifndef CUDA_KERNELS_KERNEL_MACHINE_H
#define CUDA_KERNELS_KERNEL_MACHINE_H

#include "cuda/kernels/args.h"
#include "cuda/kernels/channel.h"
#include "cuda/kernels/table.h"
#include "cuda/kernels/train_args.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct vector {
	uint32_t w[4];
};

#define KERNEL_THREADS_OF(name, threads) THREADS_OF_##name = threads,
enum { CUDA_KERNELS(KERNEL_THREADS_OF) };
#undef KERNEL_THREADS_OF

#ifdef __CUDACC__
#include "cuda/kernels/gpu_machine.h"
#else
#include "cuda/kernels/cpu_machine.h"
#endif

#endif
