/* The loops of `complexes.py` by hand, compiled as generated loops are. */
#include <stdint.h>

typedef struct { double re, im; } number;

void fftz2(int64_t sign, int64_t l, int64_t m, const number *u, const number *restrict x, number *restrict y,
           int64_t n, int64_t ny)
{
    const int64_t lk = 1ll << (l - 1), li = 1ll << (m - l);
    for (int64_t i = 0; i < li; i++) {
        number w = u[li + i];
        if (sign < 1)
            w.im = -w.im;
        for (int64_t k = 0; k < lk; k++) {
            const number *a = x + (i * lk + k) * ny, *b = a + n / 2 * ny;
            number *first = y + (2 * i * lk + k) * ny, *second = first + lk * ny;
            for (int64_t j = 0; j < ny; j++) {
                const double re = a[j].re - b[j].re, im = a[j].im - b[j].im;
                first[j].re = a[j].re + b[j].re;
                first[j].im = a[j].im + b[j].im;
                second[j].re = w.re * re - w.im * im;
                second[j].im = w.re * im + w.im * re;
            }
        }
    }
}

void evolve(number *restrict u0, number *restrict u1, const double *restrict twiddle, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        u0[i].re *= twiddle[i];
        u0[i].im *= twiddle[i];
        u1[i] = u0[i];
    }
}

void mandelbrot(int32_t *counts, int64_t rows, int64_t columns, int64_t limit)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double re = -2.0 + 3.0 * j / columns, im = -1.5 + 3.0 * i / rows;
            double a = 0, b = 0;
            int32_t k = 0;
            while (k < limit && a * a + b * b <= 4.0) {
                const double next = a * a - b * b + re;
                b = 2 * a * b + im;
                a = next;
                k++;
            }
            counts[i * columns + j] = k;
        }
}
