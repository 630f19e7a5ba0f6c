/* The least and the greatest element of evenly spaced integers, of each chunk of them; kernels for `pool.c`. */
#include <stdint.h>

typedef struct {
    const char *first;
    int64_t stride; /* bytes */
    void *found;    /* of each chunk the least, then the greatest */
} Arguments;

#define PASS(T, element) \
    for (int64_t k = begin; k < end; k++) { \
        T value = element; \
        least = value < least ? value : least; \
        greatest = value > greatest ? value : greatest; \
    }

/* Elements that lie side by side have a loop of their own, which a compiler makes wide. */
#define EXTREMES(T, name) \
void extremes_##name(const void *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker) \
{ \
    const Arguments of = *(const Arguments *)arguments; \
    T least = *(const T *)(of.first + begin * of.stride), greatest = least; \
    if (of.stride == sizeof(T)) \
        PASS(T, ((const T *)of.first)[k]) \
    else \
        PASS(T, *(const T *)(of.first + k * of.stride)) \
    ((T *)of.found)[2 * chunk] = least; \
    ((T *)of.found)[2 * chunk + 1] = greatest; \
    (void)worker; \
}

EXTREMES(int8_t, int8)
EXTREMES(int16_t, int16)
EXTREMES(int32_t, int32)
EXTREMES(int64_t, int64)
EXTREMES(uint8_t, uint8)
EXTREMES(uint16_t, uint16)
EXTREMES(uint32_t, uint32)
EXTREMES(uint64_t, uint64)
