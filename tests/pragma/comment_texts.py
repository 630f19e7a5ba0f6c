"""Bodies of functions with directives as comments, each with the same body with directive strings."""

RIGHT = {
    "a statement": (
        """
        #$ omp task depend(in: x)
        g(x)
        """,
        """
        with omp("task depend(in: x)"):
            g(x)
        """,
    ),
    "of several that follow, the first": (
        """
        a()
        #$ omp task

        # an ordinary comment
        b(
            1)
        c()
        """,
        """
        a()
        with omp("task"):
            b(1)
        c()
        """,
    ),
    "a statement before others on its line": (
        """
        #omp task
        a(); b()
        """,
        """
        with omp("task"):
            a()
        b()
        """,
    ),
    "compound statements": (
        """
        #omp task
        if a:
            b()
        else:
            c()
        #omp task
        for i in a:
            b()
        #omp task
        with a:
            b()
        #omp task
        try:
            b()
        finally:
            c()
        """,
        """
        with omp("task"):
            if a:
                b()
            else:
                c()
        with omp("task"):
            for i in a:
                b()
        with omp("task"):
            with a:
                b()
        with omp("task"):
            try:
                b()
            finally:
                c()
        """,
    ),
    "stand-alone directives stand where they are": (
        """
        #$ omp barrier
        a()
        #$ omp taskwait
        for i in b:
            #$ omp taskyield
            c()
            #$ omp taskwait

        #$ omp target update to(x)
        """,
        """
        omp("barrier")
        a()
        omp("taskwait")
        for i in b:
            omp("taskyield")
            c()
            omp("taskwait")
        omp("target update to(x)")
        """,
    ),
    "the indentation decides, also before a dedent": (
        """
        for i in a:
            for j in b:
                c()
                #$ omp taskwait
            #$ omp taskyield
        #$ omp barrier
        d()
        """,
        """
        for i in a:
            for j in b:
                c()
                omp("taskwait")
            omp("taskyield")
        omp("barrier")
        d()
        """,
    ),
    "the ends of all blocks": (
        """
        if a:
            b()
            #omp taskwait
        elif c:
            d()
            #omp taskyield
        elif e:
            f()
            #omp barrier
        else:
            g()
            #omp taskwait
        while h:
            i()
            #omp taskwait
        else:
            j()
            #omp taskyield
        try:
            k()
            #omp taskwait
        except A:
            #omp barrier
            l()
            #omp taskyield
        except B:
            m()
            #omp flush
        else:
            n()
            #omp taskwait
        finally:
            o()
            #omp taskyield
        match p:
            case 1:
                q()
                #omp taskwait
            case 2:
                #omp taskyield
                r()
        """,
        """
        if a:
            b()
            omp("taskwait")
        elif c:
            d()
            omp("taskyield")
        elif e:
            f()
            omp("barrier")
        else:
            g()
            omp("taskwait")
        while h:
            i()
            omp("taskwait")
        else:
            j()
            omp("taskyield")
        try:
            k()
            omp("taskwait")
        except A:
            omp("barrier")
            l()
            omp("taskyield")
        except B:
            m()
            omp("flush")
        else:
            n()
            omp("taskwait")
        finally:
            o()
            omp("taskyield")
        match p:
            case 1:
                q()
                omp("taskwait")
            case 2:
                omp("taskyield")
                r()
        """,
    ),
    "an if in an else": (
        """
        if a:
            b()
        else:
            #omp task
            if c:
                d()
            #omp taskwait
        """,
        """
        if a:
            b()
        else:
            with omp("task"):
                if c:
                    d()
            omp("taskwait")
        """,
    ),
    "bodies on the line of their heads": (
        """
        if a: b()
        #omp task
        if c: d()
        else: e(
            1)
        #omp taskwait
        for i in a: pass
        """,
        """
        if a: b()
        with omp("task"):
            if c: d()
            else: e(1)
        omp("taskwait")
        for i in a: pass
        """,
    ),
    "directives above each other": (
        """
        #pragma omp parallel num_threads(4)
        #pragma omp for reduction(+: s)
        for i in range(n):
            s += a[i]
        """,
        """
        with omp("parallel num_threads(4)"):
            with omp("for reduction(+: s)"):
                for i in range(n):
                    s += a[i]
        """,
    ),
    "the end of a block of several statements": (
        """
        #$ omp parallel
        a()
        #$ omp taskwait
        b()
        #$ omp end parallel
        c()
        """,
        """
        with omp("parallel"):
            a()
            omp("taskwait")
            b()
        c()
        """,
    ),
    "ends inside of ends": (
        """
        #$ omp parallel
        #$ omp single
        a()
        #$ omp task
        b()
        #$ omp end single
        #$ omp for
        for i in range(n):
            c[i] = 0
        d()
        #$ omp critical (name)
        e()
        e()
        #$ omp end critical
        #$ omp end parallel
        """,
        """
        with omp("parallel"):
            with omp("single"):
                a()
                with omp("task"):
                    b()
            with omp("for"):
                for i in range(n):
                    c[i] = 0
            d()
            with omp("critical (name)"):
                e()
                e()
        """,
    ),
    "ends of blocks of the same name": (
        """
        #omp task
        #omp task
        a()
        b()
        #omp end task
        c()
        """,
        """
        with omp("task"):
            with omp("task"):
                a()
                b()
        c()
        """,
    ),
    "names at an end": (
        """
        #omp parallel master
        a()
        #omp end parallel masked
        #omp parallel masked
        a()
        #omp   end   parallel_master
        #omp target_data map(to: x)
        a()
        #omp end_target_data
        #acc host_data use_device(x)
        a()
        #acc end host_data
        #omp atomic update
        x += 1
        #omp end atomic
        """,
        """
        with omp("parallel master"):
            a()
        with omp("parallel masked"):
            a()
        with omp("target_data map(to: x)"):
            a()
        with acc("host_data use_device(x)"):
            a()
        with omp("atomic update"):
            x += 1
        """,
    ),
    "sections": (
        """
        #$ omp parallel sections
        #$ omp section
        a()
        #$ omp section
        b()
        b()
        #$ omp end section
        #$ omp end parallel sections
        """,
        """
        with omp("parallel sections"):
            with omp("section"):
                a()
            with omp("section"):
                b()
                b()
        """,
    ),
    "directives in nests": (
        """
        #acc parallel loop gang copy(x)
        for i in range(n):
            #acc cache(x[i])
            #acc loop vector
            for j in range(n):
                #acc atomic
                x[i] += j
        """,
        """
        with acc("parallel loop gang copy(x)"):
            for i in range(n):
                acc("cache(x[i])")
                with acc("loop vector"):
                    for j in range(n):
                        with acc("atomic"):
                            x[i] += j
        """,
    ),
    "continued comments": (
        """
        #pragma omp target \\
        #pragma omp    map(to: x) \\
        #pragma omp    nowait
        a(x)
        #$ omp target &
        #$ omp map(to: y) &
        #$ omp nowait
        b(y)
        """,
        """
        with omp("target\\nmap(to: x)\\nnowait"):
            a(x)
        with omp("target\\nmap(to: y)\\nnowait"):
            b(y)
        """,
    ),
    "comments that are no directives": (
        """
        # omp task
        #  pragma omp task
        #Pragma omp task
        #OMP task
        #$  omp task
        #ompx task
        #omp4py task
        #accumulate
        #pragma ompx
        a()  #omp task
        b = '''
        #omp task
        '''
        """,
        """
        a()
        b = '''
        #omp task
        '''
        """,
    ),
    "nested functions and classes": (
        """
        def g(a,
            #omp task
            b):
            #omp nonsense
            a()
            #omp taskwait
        #omp taskwait
        g()
        class A:
            #omp nonsense
            def h(self):
                #omp taskwait
                pass
            #omp taskwait
        #omp taskyield
        """,
        """
        def g(a, b):
            a()
        omp("taskwait")
        g()
        class A:
            def h(self):
                pass
        omp("taskyield")
        """,
    ),
    "nested functions and classes with decorators": (
        """
        @directives
        def g(a,
            #omp task
            b):
            #omp nonsense
            a()
            #omp taskwait
        #omp taskwait
        @omp
        class A:
            #omp nonsense
            def h(self):
                #omp nonsense
                pass
        """,
        """
        @directives
        def g(a, b):
            a()
        omp("taskwait")
        @omp
        class A:
            def h(self):
                pass
        """,
    ),
    "a function form": (
        """
        #omp task depend(inout: x)
        def g(x):
            x += 1
        #omp target nowait
        @directives
        def h(x):
            x += 1
        @first
        #omp taskloop
        @second
        def i(x):
            x += 1
        #acc parallel
        #acc kernels
        async def j():
            pass
        """,
        """
        @omp("task depend(inout: x)")
        def g(x):
            x += 1
        @omp("target nowait")
        @directives
        def h(x):
            x += 1
        @first
        @omp("taskloop")
        @second
        def i(x):
            x += 1
        @acc("parallel")
        @acc("kernels")
        async def j():
            pass
        """,
    ),
    "a block around a definition": (
        """
        #omp parallel
        def g(x):
            x += 1
        #omp task
        class A:
            pass
        #omp task
        def h(x):
            x += 1
        h(1)
        #omp end task
        """,
        """
        with omp("parallel"):
            def g(x):
                x += 1
        with omp("task"):
            class A:
                pass
        with omp("task"):
            def h(x):
                x += 1
            h(1)
        """,
    ),
}
