/* Random words, lengths and values of a floating point type, from one state. */
#include "tests/train/precision/random_bits.h"

#include "tests/random.h"

#include <string.h>

uint64_t random_state;

uint64_t random_u64(void)
{
	return random_next(&random_state);
}

size_t draw_below(size_t n)
{
	return (size_t)(random_u64() % n);
}

float of_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}
