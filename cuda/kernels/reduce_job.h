/* A reduction as kernels carry it out: which thread takes which elements, and how pointers are
 * aligned. */
#ifndef CUDA_KERNELS_REDUCE_JOB_H
#define CUDA_KERNELS_REDUCE_JOB_H

#include "cuda/kernels/elements.h"

#define GROUP  8 /* sources that are loaded at once                             */
#define LEVELS 8 /* 1,024 sources are 128 groups: the count of them has 8 bits */

/* Arrays may lie in arguments or in the block's memory. op is no AVG: divisor says that it was one,
 * and is 0 otherwise. */
struct reduce_job {
	void *const *dst;
	const void *const *src;
	int n_dst, n_src;
	uint64_t count;
	int dtype, op, divisor;
	uint64_t thread, threads; /* this one of all that share the work */
};

/* The aligned middle of a job: n units from byte first on, `elements` of them, behind `head`. */
struct job_units {
	uint64_t head, first, n, elements;
};

/* So many elements a thread takes at once where nothing is unrolled. */
#define UNIT_MOST            4
#define UNIT_ELEMENTS(dtype) (element_bytes(dtype) == 8 ? 2 : UNIT_MOST)
#define UNIT_BYTES(dtype)    (UNIT_ELEMENTS(dtype) * element_bytes(dtype))

DEVICE struct job_units units_none(void)
{
	struct job_units none = {0, 0, 0, 0};
	return none;
}

/* All pointers are equally far from a multiple of so many bytes, a power of two. */
DEVICE int job_is_even(const struct reduce_job *job, int bytes)
{
	uintptr_t first = (uintptr_t)job->dst[0], differ = 0;

	for (int d = 1; d < job->n_dst; d++)
		differ |= (uintptr_t)job->dst[d] ^ first;
	for (int s = 0; s < job->n_src; s++)
		differ |= (uintptr_t)job->src[s] ^ first;
	return (differ & (uintptr_t)(bytes - 1)) == 0;
}

DEVICE struct job_units units_of(const struct reduce_job *job, int bytes, int dtype)
{
	uint64_t size = (uint64_t)element_bytes(dtype), start = (uintptr_t)job->dst[0];
	uint64_t before = (0 - start) & (uint64_t)(bytes - 1);
	struct job_units units = {before / size, before, 0, 0};

	if (before % size != 0 || units.head >= job->count || !job_is_even(job, bytes))
		return units_none();
	units.n = (job->count - units.head) * size / (uint64_t)bytes;
	units.elements = units.n * (uint64_t)bytes / size;
	return units;
}

/* Units come first, then the elements that are in none: where the i-th of all begins, in bytes, and
 * how many elements it has. */
DEVICE uint64_t units_part(struct job_units units, uint64_t i, int *elements, int dtype)
{
	uint64_t bytes = (uint64_t)element_bytes(dtype), rest = i - units.n;

	*elements = i < units.n ? UNIT_ELEMENTS(dtype) : 1;
	if (i < units.n)
		return units.first + i * (uint64_t)UNIT_BYTES(dtype);
	return (rest < units.head ? rest : rest + units.elements) * bytes;
}

/* Byte by byte where the element is not aligned. */
DEVICE uint64_t load_element(const void *p, int bytes)
{
	uint64_t bits = 0;

	if (((uintptr_t)p & (uintptr_t)(bytes - 1)) == 0)
		return load_8(p, bytes);
	NO_UNROLL
	for (int b = 0; b < bytes; b++)
		bits |= load_8((const char *)p + b, 1) << (8 * b);
	return bits;
}

DEVICE void store_element(void *p, uint64_t bits, int bytes)
{
	if (((uintptr_t)p & (uintptr_t)(bytes - 1)) == 0) {
		store_8(p, bits, bytes);
		return;
	}
	NO_UNROLL
	for (int b = 0; b < bytes; b++)
		store_8((char *)p + b, bits >> (8 * b) & 0xff, 1);
}

/* A whole unit, which is aligned, or one element. */
DEVICE struct vector load_elements(const void *p, int elements, int dtype)
{
	struct vector v = vector_zero();

	if (elements == 1)
		vector_put(&v, 0, element_bytes(dtype), load_element(p, element_bytes(dtype)));
	else if (UNIT_BYTES(dtype) == 16)
		v = load_vector(p);
	else
		vector_put(&v, 0, 8, load_8(p, UNIT_BYTES(dtype)));
	return v;
}

DEVICE void store_elements(void *p, struct vector v, int elements, int dtype)
{
	if (elements == 1)
		store_element(p, vector_get(&v, 0, element_bytes(dtype)), element_bytes(dtype));
	else if (UNIT_BYTES(dtype) == 16)
		store_vector(p, v);
	else
		store_8(p, vector_get(&v, 0, 8), UNIT_BYTES(dtype));
}

#endif
